#include "proto/schema/man_page.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_line_of(const char *line, const struct man_page_part *part)
{
	const size_t n = strlen(part->name);

	return line[0] == '@' && strncmp(line + 1, part->name, n) == 0 &&
		strcmp(line + 1 + n, "@\n") == 0;
}

int man_page_print(const char *frame, const struct man_page_part *parts, FILE *out)
{
	FILE *in = fopen(frame, "r");
	const struct man_page_part *part;
	char line[4096];
	int rc = in ? 0 : -errno;

	while (rc == 0 && fgets(line, sizeof(line), in)) {
		for (part = parts; part->name != NULL && !is_line_of(line, part); part++)
			;
		if (part->name != NULL)
			part->print(out);
		else if (line[0] == '@')
			rc = -EINVAL;
		else
			fputs(line, out);
	}
	if (rc == 0 && ferror(in))
		rc = -EIO;
	if (rc == -EINVAL)
		fprintf(stderr, "%s: %.*s: no such part\n", frame, (int)strcspn(line, "\n"), line);
	else if (rc != 0)
		fprintf(stderr, "%s: %s\n", frame, strerror(-rc));
	if (in)
		fclose(in);
	return rc;
}

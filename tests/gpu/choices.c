#include "tests/gpu/choices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CHOICES_MAX = 1024 };

static int failed(const char *path, const char *why)
{
	fprintf(stderr, "%s: %s\n", path, why);
	return -1;
}

int choices_read(struct k_context *ctx, const char *path)
{
	struct k_choice choices[CHOICES_MAX];
	FILE *file = fopen(path, "re");
	size_t n;

	if (!file)
		return errno == ENOENT ? 1 : failed(path, strerror(errno));
	n = fread(choices, sizeof *choices, CHOICES_MAX, file);
	if (ferror(file) || fgetc(file) != EOF) {
		fclose(file);
		return failed(path, "not whole choices, or more than there can be");
	}
	fclose(file);
	if (k_choices_set(ctx, choices, (int64_t)n) < 0)
		return failed(path, "no memory for the choices");
	return 0;
}

int choices_write(const struct k_context *ctx, const char *path)
{
	struct k_choice choices[CHOICES_MAX];
	int64_t n = k_choices(ctx, choices, CHOICES_MAX);
	FILE *file;

	if (n > CHOICES_MAX)
		return failed(path, "more choices than there can be");
	file = fopen(path, "wxe");
	if (!file)
		return failed(path, strerror(errno));
	if (fwrite(choices, sizeof *choices, (size_t)n, file) != (size_t)n || fflush(file) != 0) {
		int error = errno;

		fclose(file);
		return failed(path, strerror(error));
	}
	fclose(file);
	return 0;
}

/*
 * Conf: a file of settings is taken, or each error names the file and a line; what is printed of a
 * file that was taken is taken again, to the same.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/settings_load.h"
#include "tests/fuzz/fuzz.h"

/* Settings that were read from text, printed; NULL: refused, and why in *errors. */
static char *printed(const void *text, size_t n, char **errors)
{
	char path[32], name[] = "gpt2d", test[] = "-n", config[] = "-c";
	char *argv[] = {name, test, config, path, NULL};
	struct settings_command command;
	struct settings settings;
	char *out = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(errors, &bytes);
	int fd = memfd_create("conf", MFD_CLOEXEC), rc;

	FUZZ_MUST(to != NULL && fd >= 0);
	/* others may not write the file */
	FUZZ_MUST(fchmod(fd, 0600) == 0 && write(fd, text, n) == (ssize_t)n);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = settings_load(&settings, 4, argv, &command, to);
	fclose(to);
	if (rc == 0) {
		to = open_memstream(&out, &bytes);
		FUZZ_MUST(to != NULL);
		settings_print(&settings, to);
		fclose(to);
	} else {
		FUZZ_MUST(strstr(*errors, path) != NULL);
	}
	settings_finish(&settings);
	close(fd);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *errors = NULL, *errors_again = NULL, *again;
	char *out = printed(data, size, &errors);

	if (out != NULL) {
		FUZZ_MUST(errors[0] == '\0');
		again = printed(out, strlen(out), &errors_again);
		FUZZ_MUST(again != NULL && strcmp(out, again) == 0);
		free(again);
		free(errors_again);
	}
	free(out);
	free(errors);
	return 0;
}

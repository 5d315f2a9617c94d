/*
 * Without libFuzzer: a target is given each file of the folders named on the command line, once, so
 * that every build tests what was found before.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static int give(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t n = 0, size = 0, got;

	if (f == NULL) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	do {
		size += 1 << 16;
		data = realloc(data, size);
		FUZZ_MUST(data != NULL);
		got = fread(data + n, 1, size - n, f);
		n += got;
	} while (got > 0);
	fclose(f);
	data = realloc(data, n + 1);
	FUZZ_MUST(data != NULL);
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, n);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int given = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		DIR *folder = opendir(argv[i]);
		struct dirent *entry;
		char path[4096];

		while (folder != NULL && (entry = readdir(folder)) != NULL) {
			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
			failed += give(path) < 0;
			given++;
		}
		if (folder != NULL)
			closedir(folder);
	}
	if (given == 0)
		fprintf(stderr, "usage: %s FOLDER...\n", argv[0]);
	return given == 0 || failed > 0;
}

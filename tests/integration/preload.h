/* preload.h: what a library that is preloaded for a test shares with that test. */
#ifndef GPT2D_TESTS_INTEGRATION_PRELOAD_H
#define GPT2D_TESTS_INTEGRATION_PRELOAD_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The file of this program's name in the folder that the variable names, at least bytes long,
 * mapped for reading and writing. NULL where there is none: this program takes no part.
 */
static inline void *preload_control(const char *variable, size_t bytes)
{
	const char *folder = getenv(variable);
	char path[PATH_MAX];
	void *map;
	int fd;

	if (folder == NULL)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", folder, program_invocation_short_name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

#endif

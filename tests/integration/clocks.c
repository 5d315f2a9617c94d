/*
 * Other times than the machine's, for tests: a library to be preloaded, which adds to the wall
 * clock and to the one since boot what the test has asked for. $GPT2D_CLOCKS is a folder; a program
 * takes part when the folder has a file of its name, a struct control. clocks.py writes it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Shared with the test. */
struct control {
	int64_t utc_s, boot_s;
};

static const struct control *control;
static int (*next)(clockid_t clock, struct timespec *out);

__attribute__((constructor)) static void begin(void)
{
	const char *folder = getenv("GPT2D_CLOCKS");
	void *symbol = dlsym(RTLD_NEXT, "clock_gettime"), *map;
	char path[PATH_MAX];
	int fd;

	if (symbol == NULL)
		abort();
	*(void **)(void *)&next = symbol;
	if (folder == NULL)
		return;
	snprintf(path, sizeof(path), "%s/%s", folder, program_invocation_short_name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*control), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		control = map;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int rc;

	if (next == NULL)
		begin();
	rc = next(clock, out);
	if (rc == 0 && control != NULL && clock == CLOCK_REALTIME)
		out->tv_sec += (time_t)__atomic_load_n(&control->utc_s, __ATOMIC_SEQ_CST);
	if (rc == 0 && control != NULL && clock == CLOCK_BOOTTIME)
		out->tv_sec += (time_t)__atomic_load_n(&control->boot_s, __ATOMIC_SEQ_CST);
	return rc;
}

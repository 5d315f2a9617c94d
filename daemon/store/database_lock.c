#include "daemon/store/database_lock.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "proto/host/clock.h"

/* Where SQLite's locks are (sqlite.org/walformat.html and lockingv3.html), of those that one who
 * starts meets: the whole of the database, and who writes to its write-ahead log. */
static const struct place {
	const char *suffix;
	off_t from, bytes;
} places[] = {
	{"", 0x40000000, 512},
	{"-shm", 120, 1},
};

static bool is_locked(const char *path, const struct place *place)
{
	struct flock lock = {.l_type = F_RDLCK,
		.l_whence = SEEK_SET,
		.l_start = place->from,
		.l_len = place->bytes};
	char name[PATH_MAX + 8];
	bool locked;
	int fd;

	snprintf(name, sizeof(name), "%s%s", path, place->suffix);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	locked = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	return locked;
}

bool database_lock_stays(const char *path, int64_t within_ms)
{
	const int64_t until_ns = clock_mono_ns() + within_ms * CLOCK_MS_NS;
	const struct timespec pause = clock_timespec(50 * CLOCK_MS_NS);

	while (is_locked(path, &places[0]) || is_locked(path, &places[1])) {
		if (clock_mono_ns() >= until_ns)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

#include "daemon/store/wal_index.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A newer library's methods are longer than what is copied here. */
enum { METHODS_VERSION = 3 };

struct wal_index {
	sqlite3_io_methods methods; /* first: how SQLite's file leads here */
	const sqlite3_io_methods *sqlite;
	/* of the index; -1 as yet. Closing it drops SQLite's locks on that file. */
	int fd;
	char path[PATH_MAX + 8];
};

/* File systems that cannot do it keep their holes. */
static int allocate(int fd, off_t at, off_t bytes)
{
	int rc;

	do
		rc = fallocate(fd, 0, at, bytes) < 0 ? -errno : 0;
	while (rc == -EINTR);
	return rc == -EOPNOTSUPP || rc == -ENOSYS ? 0 : rc;
}

static int open_index(struct wal_index *w)
{
	if (w->fd < 0)
		w->fd = open(w->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return w->fd < 0 ? -errno : 0;
}

/* SQLite's xShmMap; an error is of the kind that it has itself where the file cannot grow. */
static int map(sqlite3_file *file, int region, int bytes, int extend, void volatile **out)
{
	struct wal_index *w = (struct wal_index *)(void *)(uintptr_t)file->pMethods;
	int rc = w->sqlite->xShmMap(file, region, bytes, extend, out), error;

	if (rc != SQLITE_OK || *out == NULL)
		return rc;
	error = open_index(w);
	if (error == 0)
		error = allocate(w->fd, (off_t)region * bytes, bytes);
	if (error == 0)
		return SQLITE_OK;
	*out = NULL;
	errno = -error; /* SQLite takes the reason from there */
	return SQLITE_IOERR_SHMSIZE;
}

int wal_index_guard(struct sqlite3 *db, struct wal_index **out)
{
	sqlite3_file *file = NULL;
	struct wal_index *w;

	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
		file == NULL || file->pMethods == NULL || file->pMethods->iVersion < 2 ||
		file->pMethods->xShmMap == NULL) {
		*out = NULL;
		return 0;
	}
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	snprintf(w->path, sizeof(w->path), "%s-shm", sqlite3_db_filename(db, "main"));
	w->fd = -1;
	w->sqlite = file->pMethods;
	w->methods = *file->pMethods;
	w->methods.xShmMap = map;
	if (w->methods.iVersion > METHODS_VERSION)
		w->methods.iVersion = METHODS_VERSION;
	file->pMethods = &w->methods;
	*out = w;
	return 0;
}

void wal_index_destroy(struct wal_index *w)
{
	if (w != NULL && w->fd >= 0)
		close(w->fd);
	free(w);
}

/*
 * Faults at a chosen point, for tests: a library to be preloaded, which counts what a program does
 * to files below $GPT2D_FAULTS_UNDER and, at the numbers that are asked for, kills the process or
 * makes the call fail. $GPT2D_FAULTS is a folder; a program takes part when the folder has a file
 * of its name, which is a struct control. faults.py writes it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/preload.h"

enum op {
	OP_WRITE = 1,
	OP_SYNC = 2,
	OP_RENAME = 4,
	OP_TRUNCATE = 8,
	OP_UNLINK = 16,
	OP_MKDIR = 32,
	OP_CREATE = 64,
	OP_LISTEN = 256, /* no file at all */
	OP_OWNER = 512,  /* of a name: its mode, its group */
	OP_CLOSE = 1024, /* where it fails the descriptor is gone, as on Linux */
};

enum action {
	ACTION_KILL = 1, /* before it is done */
	ACTION_TORN = 2, /* after it is done, a write by half */
	ACTION_FAIL = 3,
	ACTION_SHORT = 4, /* a write of half of it; others as always */
	ACTION_STALL = 5, /* it waits until that is not asked for any more, as a disk that hangs */
};

/* Shared with the test and by all processes of the program. */
struct control {
	int64_t count; /* calls so far */
	int64_t first, last;
	int64_t action, error, ops;
};

static struct control *control;
static char under[PATH_MAX];

__attribute__((constructor)) static void begin(void)
{
	const char *below = getenv("GPT2D_FAULTS_UNDER");

	if (below == NULL)
		return;
	snprintf(under, sizeof(under), "%s", below);
	control = preload_control("GPT2D_FAULTS", sizeof(*control));
}

/* The function that would be called without this library. */
static void find_next(const char *name, void *function)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	if (symbol == NULL)
		abort();
	memcpy(function, &symbol, sizeof(symbol)); /* C has no cast for it */
}

#define NEXT(result, name, ...)                                                                    \
	result (*real)(__VA_ARGS__);                                                               \
	find_next(name, &real)

static void die(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static void stall(void)
{
	const struct timespec nap = {.tv_nsec = 10 * 1000 * 1000};

	while (__atomic_load_n(&control->first, __ATOMIC_SEQ_CST) != 0)
		nanosleep(&nap, NULL);
}

/* What to do at this call; errno is set for ACTION_FAIL. A kill before it does not come back. */
static enum action count(enum op op)
{
	int64_t n;

	if (control == NULL || (control->ops & op) == 0)
		return 0;
	n = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
	if (control->first == 0 || n < control->first || n > control->last)
		return 0;
	if (control->action == ACTION_KILL)
		die();
	if (control->action == ACTION_FAIL)
		errno = (int)control->error;
	if (control->action == ACTION_STALL)
		stall();
	return (enum action)control->action;
}

static bool is_below(const char *path)
{
	size_t n = strlen(under);

	return strncmp(path, under, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static enum action at_fd(enum op op, int fd)
{
	char link[64], path[PATH_MAX];
	int before = errno;
	ssize_t n;

	if (control == NULL)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	errno = before;
	if (n < 0)
		return 0;
	path[n] = '\0';
	return is_below(path) ? count(op) : 0;
}

static enum action at_name(enum op op, int dir, const char *name)
{
	if (control == NULL)
		return 0;
	if (name[0] == '/')
		return is_below(name) ? count(op) : 0;
	return dir == AT_FDCWD ? 0 : at_fd(op, dir);
}

static int ended(enum action action, int result)
{
	if (action == ACTION_TORN)
		die();
	return result;
}

/* ---- writes ---- */

static size_t part(enum action action, size_t n)
{
	return (action == ACTION_TORN || action == ACTION_SHORT) && n > 1 ? n / 2 : n;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
	NEXT(ssize_t, "write", int, const void *, size_t);
	enum action action = at_fd(OP_WRITE, fd);
	ssize_t done;

	if (action == ACTION_FAIL)
		return -1;
	done = real(fd, bytes, part(action, n));
	if (action == ACTION_TORN)
		die();
	return done;
}

static ssize_t write_at(const char *name, int fd, const void *bytes, size_t n, off_t at)
{
	NEXT(ssize_t, name, int, const void *, size_t, off_t);
	enum action action = at_fd(OP_WRITE, fd);
	ssize_t done;

	if (action == ACTION_FAIL)
		return -1;
	done = real(fd, bytes, part(action, n), at);
	if (action == ACTION_TORN)
		die();
	return done;
}

/* With 64-bit offsets the compiler's pwrite is the library's pwrite64: both names are needed. */
#define BOTH(result, one, arguments, call)                                                         \
	result one##_small arguments __asm__(#one);                                                \
	result one##_small arguments                                                               \
	{                                                                                          \
		return call;                                                                       \
	}                                                                                          \
	result one##_large arguments __asm__(#one "64");                                           \
	result one##_large arguments                                                               \
	{                                                                                          \
		return call;                                                                       \
	}

BOTH(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at),
	write_at("pwrite64", fd, bytes, n, at))

static int truncate_to(int fd, off_t bytes)
{
	NEXT(int, "ftruncate64", int, off_t);
	enum action action = at_fd(OP_TRUNCATE, fd);

	return action == ACTION_FAIL ? -1 : ended(action, real(fd, bytes));
}

BOTH(int, ftruncate, (int fd, off_t bytes), truncate_to(fd, bytes))

/* A call that returns 0 or -1. */
#define CALL(name, parameters, fault, arguments)                                                   \
	int name parameters                                                                        \
	{                                                                                          \
		int(*real) parameters;                                                             \
		enum action action = fault;                                                        \
		find_next(#name, &real);                                                           \
		return action == ACTION_FAIL ? -1 : ended(action, real arguments);                 \
	}

/* ---- syncs ---- */

CALL(fsync, (int fd), at_fd(OP_SYNC, fd), (fd))
CALL(fdatasync, (int fd), at_fd(OP_SYNC, fd), (fd))

/* ---- names ---- */

CALL(renameat, (int from_dir, const char *from, int to_dir, const char *to),
	at_name(OP_RENAME, to_dir, to), (from_dir, from, to_dir, to))

int rename(const char *from, const char *to)
{
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

CALL(unlink, (const char *path), at_name(OP_UNLINK, AT_FDCWD, path), (path))
CALL(unlinkat, (int dir, const char *path, int flags), at_name(OP_UNLINK, dir, path),
	(dir, path, flags))
CALL(mkdir, (const char *path, mode_t mode), at_name(OP_MKDIR, AT_FDCWD, path), (path, mode))
CALL(chmod, (const char *path, mode_t mode), at_name(OP_OWNER, AT_FDCWD, path), (path, mode))
CALL(lchown, (const char *path, uid_t uid, gid_t gid), at_name(OP_OWNER, AT_FDCWD, path),
	(path, uid, gid))

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
	NEXT(int, "openat64", int, const char *, int, ...);
	enum action action = (flags & O_CREAT) ? at_name(OP_CREATE, dir, path) : 0;

	return action == ACTION_FAIL ? -1 : ended(action, real(dir, path, flags, mode));
}

static mode_t mode_of(int flags, va_list args)
{
	return (flags & (O_CREAT | __O_TMPFILE)) ? (mode_t)va_arg(args, int) : 0;
}

#define OPEN(name, symbol, parameters, dir)                                                        \
	int name parameters __asm__(symbol);                                                       \
	int name parameters                                                                        \
	{                                                                                          \
		va_list args;                                                                      \
		mode_t mode;                                                                       \
		va_start(args, flags);                                                             \
		mode = mode_of(flags, args);                                                       \
		va_end(args);                                                                      \
		return open_at(dir, path, flags, mode);                                            \
	}

OPEN(open_small, "open", (const char *path, int flags, ...), AT_FDCWD)
OPEN(open_large, "open64", (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat_small, "openat", (int dir, const char *path, int flags, ...), dir)
OPEN(openat_large, "openat64", (int dir, const char *path, int flags, ...), dir)

int close(int fd)
{
	NEXT(int, "close", int);
	bool asked = control != NULL && (control->ops & OP_CLOSE) != 0;
	enum action action = asked ? at_fd(OP_CLOSE, fd) : 0;
	int error = errno, result = real(fd);

	if (action != ACTION_FAIL)
		return ended(action, result);
	errno = error;
	return -1;
}

/* ---- no files ---- */

CALL(listen, (int fd, int backlog), count(OP_LISTEN), (fd, backlog))

#include "daemon/store/lock_holders.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/text.h"

enum { TOLD = 3, NAME_BYTES = 32 };

/* The files on which SQLite's locks are, in WAL mode and before it. */
static const char *const suffixes[] = {"", "-shm"};
enum { FILES = sizeof(suffixes) / sizeof(suffixes[0]), SHM = 1 };

/* Bytes of the latter that are locked while one reads (sqlite.org/walformat.html). */
enum { READ_FIRST = 123, READ_LAST = 127 };

struct holders {
	bool reading; /* only those that do */
	bool writes;  /* those that are in pids */
	int count, pids[TOLD + 1];
};

static bool is_of(const struct stat *st, unsigned major, unsigned minor, unsigned long long inode)
{
	return st->st_ino == inode && major(st->st_dev) == major && minor(st->st_dev) == minor;
}

/* Who writes is in the way of all, who reads only of some. */
static void add(struct holders *h, int pid, bool writes)
{
	if (pid <= 0 || pid == getpid() || (h->writes && !writes))
		return;
	if (writes && !h->writes)
		*h = (struct holders){.reading = h->reading, .writes = true};
	for (int i = 0; i < h->count; i++)
		if (h->pids[i] == pid)
			return;
	if (h->count <= TOLD)
		h->pids[h->count++] = pid;
}

/* "1: POSIX  ADVISORY  WRITE 3520 00:32:12345 120 120"; of one that waits "1: -> POSIX ..." */
static void read_locks(const struct stat files[FILES], struct holders *h)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned major, minor;
	unsigned long long inode;
	char *line = NULL, mode[8];
	size_t line_bytes = 0;
	long long from, to;
	int pid, n;

	while (f != NULL && getline(&line, &line_bytes, f) > 0) {
		n = sscanf(line, "%*d: POSIX %*s %7s %d %x:%x:%llu %lld %lld", mode, &pid, &major,
			&minor, &inode, &from, &to);
		if (n < 6)
			continue;
		if (n == 6)
			to = LLONG_MAX; /* "EOF" */
		for (int i = 0; i < FILES; i++)
			if (is_of(&files[i], major, minor, inode) &&
				(!h->reading ||
					(i == SHM && from <= READ_LAST && to >= READ_FIRST)))
				add(h, pid, !h->reading && strcmp(mode, "WRITE") == 0);
	}
	free(line);
	if (f != NULL)
		fclose(f);
}

static void read_name(int pid, char out[NAME_BYTES])
{
	char path[32];
	FILE *f;

	out[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	if (fgets(out, NAME_BYTES, f) != NULL)
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
	for (char *c = out; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	text_clean(out);
}

static void advise(const char *database, bool reading, char *out, size_t out_bytes)
{
	struct stat files[FILES] = {0};
	char path[PATH_MAX], name[NAME_BYTES], who[TOLD * 64] = "";
	struct holders h = {.reading = reading};
	size_t used = 0;

	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s%s", database, suffixes[i]);
		if (stat(path, &files[i]) < 0)
			files[i] = (struct stat){0};
	}
	read_locks(files, &h);
	for (int i = 0; i < h.count && i < TOLD; i++) {
		read_name(h.pids[i], name);
		used += (size_t)snprintf(who + used, sizeof(who) - used, "%spid %d%s%s%s",
			i ? ", " : "", h.pids[i], name[0] ? " (" : "", name, name[0] ? ")" : "");
	}
	if (h.count == 0)
		snprintf(out, out_bytes, "find it with \"fuser -v %s*\", and end it", database);
	else
		snprintf(out, out_bytes, "end %s%s, or wait for it", who,
			h.count > TOLD ? " and others" : "");
}

void lock_holders_advise(const char *database, char *out, size_t out_bytes)
{
	advise(database, false, out, out_bytes);
}

void lock_holders_advise_reading(const char *database, char *out, size_t out_bytes)
{
	advise(database, true, out, out_bytes);
}

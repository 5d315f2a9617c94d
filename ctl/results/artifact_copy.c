#include "ctl/results/artifact_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/print/format.h"
#include "proto/artifact.h"
#include "proto/base64.h"
#include "proto/digest.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"

enum {
	DRAW_NS = 100000000,
	BAR_CELLS = 24,
	MESSAGE_BYTES = 256,
	PATH_SHOWN = 120, /* bytes of one in a message */
	HASH_CHARS = 16,  /* of the hash in the name of a partial file */
	DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

static const char part_end[] = ".part";

struct copy {
	struct client *client;
	const struct term *bar; /* NULL: no progress is drawn */
	int64_t run;
	const json_t *files, *missing;
	int dir;
	const char *dir_name;
	bool force;
	int64_t done, total; /* bytes, of all files */
	int64_t start_ns, drawn_ns;
	bool drawn;
};

/* The file that is being copied. */
struct item {
	const char *path, *sha256;
	int64_t bytes;
	bool altered;     /* see artifact_check.h */
	bool replaces;    /* another file */
	int folder;       /* its folder below dir; -1 */
	const char *name; /* in the folder */
	char part[NAME_MAX + 1];
	int fd; /* of the partial file; -1 */
	struct digest *digest;
	int64_t have;                /* bytes in the partial file */
	char message[MESSAGE_BYTES]; /* why it was not copied */
};

enum outcome { COPIED, PRESENT, DIFFERS, FAILED, AGAIN, BROKEN };

static enum outcome fail(struct item *item, enum outcome outcome, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static enum outcome fail(struct item *item, enum outcome outcome, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(item->message, sizeof(item->message), format, args);
	va_end(args);
	return outcome;
}

/* ---- the bar ---- */

static void draw(struct copy *k, const struct item *item, int64_t now_ns)
{
	const struct term *t = k->bar;
	const double seconds = (double)(now_ns - k->start_ns) / 1e9;
	const double fraction = k->total > 0 ? (double)k->done / (double)k->total : 1.0;
	char bar[BAR_CELLS * 4 + 1], done[FORMAT_BYTES], total[FORMAT_BYTES], rate[FORMAT_BYTES];
	char name[80];

	term_bar(t, fraction, BAR_CELLS, bar, sizeof(bar));
	term_clean(item->path, name, sizeof(name));
	format_size(seconds > 0.0 ? (int64_t)fmin((double)k->done / seconds, 1e18) : 0, rate);
	fprintf(t->file, "\r\033[K[%s%s%s] %3d%%  %s of %s  %s/s", term_colour(t, TERM_CYAN), bar,
		term_colour(t, TERM_PLAIN), format_percent(fraction), format_size(k->done, done),
		format_size(k->total, total), rate);
	if (term_width(t) > 100)
		fprintf(t->file, "  %.40s", name);
	fflush(t->file);
	k->drawn = true;
	k->drawn_ns = now_ns;
}

static void advance(struct copy *k, const struct item *item, int64_t bytes)
{
	const int64_t now_ns = clock_mono_ns();

	k->done = format_sum(k->done, bytes);
	if (k->bar && now_ns - k->drawn_ns >= DRAW_NS)
		draw(k, item, now_ns);
}

static void clear_bar(struct copy *k)
{
	if (!k->drawn)
		return;
	fputs("\r\033[K", k->bar->file);
	fflush(k->bar->file);
	k->drawn = false;
}

/* ---- the directory ---- */

/* The negative errno for a folder that cannot be entered; a link is -ELOOP. */
static int why_not(int dir, const char *name, int error)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		error = S_ISLNK(st.st_mode) ? ELOOP : S_ISDIR(st.st_mode) ? error : ENOTDIR;
	return -error;
}

/*
 * The folder of path below dir, created if make: a descriptor, or a negative errno (-ELOOP: a link,
 * -ENOTDIR: another file) with *bad, the length of the part of path that failed.
 */
static int enter(int dir, const char *path, bool make, size_t *bad)
{
	char name[NAME_MAX + 1];
	const char *rest = path;
	int fd = dup(dir), next, rc = fd < 0 ? -errno : 0;

	*bad = 0;
	while (rc == 0 && strchr(rest, '/') != NULL) {
		const size_t n = strcspn(rest, "/");

		memcpy(name, rest, n);
		name[n] = '\0';
		*bad = (size_t)(rest - path) + n;
		rest += n + 1;
		next = -1;
		if (!make || mkdirat(fd, name, 0777) == 0 || errno == EEXIST)
			next = openat(fd, name, DIR_FLAGS);
		if (next < 0)
			rc = why_not(fd, name, errno);
		close(fd);
		fd = next;
	}
	return rc < 0 ? rc : fd;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Add n bytes of fd to the digest: 0 or a negative errno; -ENODATA: there are fewer. */
static int digest_bytes(int fd, struct digest *digest, int64_t n)
{
	char bytes[65536];

	while (n > 0) {
		const ssize_t k = read(fd, bytes, n < 65536 ? (size_t)n : sizeof(bytes));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -ENODATA;
		if (digest_add(digest, bytes, (size_t)k) < 0)
			return -EIO;
		n -= k;
	}
	return 0;
}

/* Whether name in folder is a regular file of that size and hash. */
static bool has_file(int folder, const char *name, int64_t bytes, const char *wanted)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct digest *digest = digest_create();
	char sha256[65] = "";
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == bytes &&
		digest && digest_bytes(fd, digest, bytes) == 0)
		digest_finish(digest, sha256);
	digest_destroy(digest);
	if (fd >= 0)
		close(fd);
	return strcmp(sha256, wanted) == 0;
}

static bool exists(int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static const char *text_of(const json_t *file, const char *key)
{
	const char *text = json_string_value(json_object_get(file, key));

	return text ? text : "";
}

static enum outcome open_folder(struct copy *k, struct item *item)
{
	size_t bad;
	const int fd = enter(k->dir, item->path, true, &bad);
	const int n = bad < PATH_SHOWN ? (int)bad : PATH_SHOWN;

	if (fd == -ELOOP)
		return fail(item, FAILED,
			"%.*s: a symbolic link, which is not followed: remove it, or choose "
			"another directory",
			n, item->path);
	if (fd == -ENOTDIR)
		return fail(item, FAILED,
			"%.*s: not a directory: move it, or choose another directory", n,
			item->path);
	if (fd < 0)
		return fail(
			item, FAILED, "%.*s%s%s", n, item->path, n > 0 ? ": " : "", strerror(-fd));
	item->folder = fd;
	item->name = name_of(item->path);
	return COPIED;
}

/* COPIED: the file can be copied. */
static enum outcome check_target(const struct copy *k, struct item *item)
{
	struct stat st;

	if (fstatat(item->folder, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? COPIED : fail(item, FAILED, "%s", strerror(errno));
	if (S_ISLNK(st.st_mode))
		return fail(item, DIFFERS,
			"a symbolic link is there, which is not followed or replaced: remove it");
	if (!S_ISREG(st.st_mode))
		return fail(item, DIFFERS, "something that is no regular file is there");
	if (has_file(item->folder, item->name, item->bytes, item->sha256))
		return PRESENT;
	if (item->altered)
		return fail(item, DIFFERS, "another file is there; an altered file replaces none");
	if (!k->force)
		return fail(item, DIFFERS, "another file is there; --force replaces it");
	item->replaces = true;
	return COPIED;
}

/* Open the partial file, which an earlier copy may have left. */
static enum outcome open_part(struct copy *k, struct item *item)
{
	struct stat st;
	int rc;

	if (snprintf(item->part, sizeof(item->part), ".%s.%.*s%s", item->name, HASH_CHARS,
		    item->sha256, part_end) >= (int)sizeof(item->part))
		return fail(item, FAILED, "name too long");
	item->fd = openat(item->folder, item->part,
		O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
	if (item->fd < 0 && errno == ELOOP)
		return fail(item, FAILED, "%.*s: a symbolic link, which is not followed: remove it",
			PATH_SHOWN, item->part);
	if (item->fd < 0 || fstat(item->fd, &st) < 0)
		return fail(item, FAILED, "%.*s: %s", PATH_SHOWN, item->part, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return fail(item, FAILED, "%.*s: not a regular file with one name", PATH_SHOWN,
			item->part);
	if (flock(item->fd, LOCK_EX | LOCK_NB) < 0)
		return fail(item, FAILED, "another copy is writing it");
	item->have = st.st_size <= item->bytes ? st.st_size : 0;
	item->digest = digest_create();
	rc = item->digest ? digest_bytes(item->fd, item->digest, item->have) : -ENOMEM;
	if (rc == 0 && ftruncate(item->fd, item->have) < 0)
		rc = -errno;
	if (rc < 0)
		return fail(item, FAILED, "%.*s: %s", PATH_SHOWN, item->part, strerror(-rc));
	advance(k, item, item->have);
	return COPIED;
}

/* ---- pieces ---- */

static enum outcome write_piece(struct item *item, const unsigned char *bytes, size_t n)
{
	if (digest_add(item->digest, bytes, n) < 0)
		return fail(item, FAILED, "libcrypto: no SHA-256");
	item->have += (int64_t)n;
	while (n > 0) {
		const ssize_t k = write(item->fd, bytes, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail(item, errno == ENOSPC ? BROKEN : FAILED, "%s", strerror(errno));
		bytes += k;
		n -= (size_t)k;
	}
	return COPIED;
}

static enum outcome take_piece(
	struct copy *k, struct item *item, const json_t *reply, struct ctl_error *e)
{
	const json_t *data = json_object_get(reply, "data");
	const size_t length = json_string_length(data);
	unsigned char bytes[PROTOCOL_ARTIFACT_PIECE + 3];
	enum outcome outcome;
	size_t n = 0;

	if (length > base64_length(PROTOCOL_ARTIFACT_PIECE) ||
		base64_decode(json_string_value(data) ? json_string_value(data) : "=", length,
			bytes, &n) < 0 ||
		(int64_t)n > item->bytes - item->have) {
		ctl_error_set(e, CTL_TRANSPORT, "%.200s: gpt2d sent an invalid piece", item->path);
		return BROKEN;
	}
	if (n == 0)
		return fail(item, FAILED, "the file became shorter while it was copied");
	outcome = write_piece(item, bytes, n);
	if (outcome == BROKEN)
		ctl_error_set(e, CTL_TRANSPORT, "--copy: %.500s: %.200s: %s", k->dir_name,
			item->path, item->message);
	advance(k, item, (int64_t)n);
	return outcome;
}

static enum outcome fetch(struct copy *k, struct item *item, struct ctl_error *e)
{
	enum outcome outcome = COPIED;
	json_t *reply;
	int exit;

	while (outcome == COPIED && item->have < item->bytes) {
		const int64_t left = item->bytes - item->have;

		exit = client_request(k->client, METHOD_ARTIFACT_READ,
			json_pack("{s:I, s:s, s:I, s:I}", "id", (json_int_t)k->run, "path",
				item->path, "offset", (json_int_t)item->have, "bytes",
				(json_int_t)(left < PROTOCOL_ARTIFACT_PIECE
						? left
						: PROTOCOL_ARTIFACT_PIECE)),
			CLIENT_CHECK_S, &reply, e);
		if (exit == CTL_NO_SUCH_RUN || exit == CTL_USAGE) {
			fail(item, FAILED, "%.200s", e->message);
			ctl_error_clear(e);
			return FAILED;
		}
		if (exit)
			return BROKEN;
		outcome = take_piece(k, item, reply, e);
		json_decref(reply);
	}
	return outcome;
}

/* The partial file becomes the file. */
static enum outcome finish(struct item *item, bool resumed)
{
	char sha256[65];

	if (digest_finish(item->digest, sha256) < 0)
		return fail(item, FAILED, "libcrypto: no SHA-256");
	if (strcmp(sha256, item->sha256) != 0) {
		unlinkat(item->folder, item->part, 0);
		return resumed ? AGAIN : fail(item, FAILED, "the file changed while it was copied");
	}
	if (fsync(item->fd) < 0 ||
		renameat(item->folder, item->part, item->folder, item->name) < 0 ||
		fsync(item->folder) < 0)
		return fail(item, FAILED, "%s", strerror(errno));
	return COPIED;
}

static void close_item(struct item *item)
{
	if (item->fd >= 0)
		close(item->fd);
	if (item->folder >= 0)
		close(item->folder);
	digest_destroy(item->digest);
	item->fd = item->folder = -1;
	item->digest = NULL;
}

/* ---- RUN_COMPLETE.txt, which says that the files beside and below it are whole ---- */

enum { LAST_TURN = 2 };

/* Markers are copied last: a segment's in turn 1, the run's in turn 2. */
static int turn_of(const char *path)
{
	if (strcmp(name_of(path), ARTIFACT_COMPLETE) != 0)
		return 0;
	return strchr(path, '/') ? 1 : LAST_TURN;
}

static size_t folder_bytes(const char *path)
{
	return (size_t)(name_of(path) - path);
}

/* The first of files with a member `key` in the marker's folder or below it; NULL: none. */
static const char *find_below(const json_t *files, const char *marker, const char *key)
{
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
		if (json_object_get(file, key) &&
			strncmp(text_of(file, "path"), marker, folder_bytes(marker)) == 0)
			return text_of(file, "path");
	return NULL;
}

/* Whether the marker in folder, which path names, is this run's. */
static bool is_ours(const struct copy *k, int folder, const char *path)
{
	const json_t *file;
	size_t i;

	json_array_foreach(k->files, i, file)
		if (strcmp(text_of(file, "path"), path) == 0)
			return has_file(folder, ARTIFACT_COMPLETE, format_int(file, "bytes", -1),
				text_of(file, "sha256"));
	return false;
}

/* On disk before anything that the marker vouches for is written. */
static int remove_marker(int folder)
{
	if (unlinkat(folder, ARTIFACT_COMPLETE, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fsync(folder) < 0 ? -errno : 0;
}

/*
 * Before item is written: remove the markers beside and above it that are this run's, or any
 * others if item replaces another file.
 */
static enum outcome drop_markers(struct copy *k, struct item *item)
{
	char marker[PATH_MAX];
	const char *rest = item->path;
	int rc = 0;

	while (rc == 0 && rest != NULL) {
		size_t bad;
		int folder;

		snprintf(marker, sizeof(marker), "%.*s" ARTIFACT_COMPLETE, (int)(rest - item->path),
			item->path);
		folder = enter(k->dir, marker, false, &bad);
		if (folder < 0)
			return fail(item, FAILED, "%s", strerror(-folder));
		if (exists(folder, ARTIFACT_COMPLETE) &&
			(item->replaces || is_ours(k, folder, marker)))
			rc = remove_marker(folder);
		close(folder);
		rest = strchr(rest, '/');
		rest = rest ? rest + 1 : NULL;
	}
	return rc == 0 ? COPIED
		       : fail(item, FAILED, "cannot remove an older " ARTIFACT_COMPLETE ": %s",
				 strerror(-rc));
}

/* Whether DIR lacks a file that the marker vouches for, or has another one. */
static bool is_false(const struct copy *k, const char *marker)
{
	const json_t *file;
	size_t i, bad;

	json_array_foreach(k->files, i, file) {
		const char *result = text_of(file, "result");

		if (strncmp(text_of(file, "path"), marker, folder_bytes(marker)) == 0 &&
			!json_object_get(file, "altered") &&
			(strcmp(result, "differs") == 0 || strcmp(result, "failed") == 0))
			return true;
	}
	json_array_foreach(k->missing, i, file) {
		const char *path = text_of(file, "path");
		int folder;
		bool absent;

		if (strncmp(path, marker, folder_bytes(marker)) != 0 || !artifact_path_valid(path))
			continue;
		folder = enter(k->dir, path, false, &bad);
		absent = folder < 0 || !exists(folder, name_of(path));
		if (folder >= 0)
			close(folder);
		if (absent)
			return true;
	}
	return false;
}

/* The marker is not copied: remove one that an earlier copy left and that is now false. */
static bool remove_false(const struct copy *k, const char *marker)
{
	bool removed = false;
	size_t bad;
	int folder = artifact_path_valid(marker) ? enter(k->dir, marker, false, &bad) : -1;

	if (folder < 0)
		return false;
	if (exists(folder, ARTIFACT_COMPLETE) && is_ours(k, folder, marker) && is_false(k, marker))
		removed = remove_marker(folder) == 0;
	close(folder);
	return removed;
}

/* A marker whose files are not all copied is left out: COPIED, or FAILED with item's message. */
static enum outcome check_marker(const struct copy *k, const char *path, struct item *item)
{
	const char *altered = find_below(k->files, path, "altered");
	const char *lacking = find_below(k->files, path, "message");
	const char *removed;

	if (!lacking)
		lacking = find_below(k->missing, path, "path");
	if (!altered && !lacking)
		return COPIED;
	removed = remove_false(k, path) ? ", and the older one in the directory is removed" : "";
	return fail(item, FAILED, "not copied%s: %.*s is %s", removed, PATH_SHOWN,
		altered ? altered : lacking, altered ? "altered" : "not copied");
}

/* ---- files ---- */

static enum outcome try_item(struct copy *k, struct item *item, struct ctl_error *e)
{
	enum outcome outcome = open_folder(k, item);
	bool resumed = false;

	if (outcome == COPIED)
		outcome = check_target(k, item);
	if (outcome == COPIED && turn_of(item->path) == 0)
		outcome = drop_markers(k, item);
	if (outcome == COPIED)
		outcome = open_part(k, item);
	if (outcome == COPIED) {
		resumed = item->have > 0;
		outcome = fetch(k, item, e);
	}
	if (outcome == COPIED)
		outcome = finish(item, resumed);
	close_item(item);
	return outcome;
}

static enum outcome copy_item(struct copy *k, json_t *file, struct item *item, struct ctl_error *e)
{
	const int64_t before = k->done;
	enum outcome outcome;

	item->path = json_string_value(json_object_get(file, "path"));
	item->sha256 = json_string_value(json_object_get(file, "sha256"));
	item->bytes = format_int(file, "bytes", -1);
	item->altered = json_object_get(file, "altered") != NULL;
	if (item->path == NULL || !artifact_path_valid(item->path))
		return fail(item, FAILED, "gpt2d sent a name that is not that of an artifact");
	if (item->bytes < 0)
		return fail(item, FAILED, "gpt2d sent an invalid size");
	if (item->sha256 == NULL)
		return fail(item, FAILED, "gpt2d could not read the file");
	if (strlen(item->sha256) != 64 || strspn(item->sha256, "0123456789abcdef") != 64)
		return fail(item, FAILED, "gpt2d sent an invalid SHA-256");
	outcome = try_item(k, item, e);
	if (outcome == AGAIN) { /* the partial file was not the beginning of it */
		k->done = before;
		outcome = try_item(k, item, e);
	}
	k->done = format_sum(before, item->bytes);
	return outcome;
}

/* ENOENT may also mean that the file system, such as /proc, has no directories to create. */
static bool parent_is_there(const char *dir)
{
	char *copy = memory_text(dir);
	const bool there = access(dirname(copy), F_OK) == 0;

	free(copy);
	return there;
}

/* Locked, because two copies would mix two runs under one marker. */
static int open_dir(const char *dir, int *fd, struct ctl_error *e)
{
	const int error = mkdir(dir, 0777) < 0 ? errno : 0;

	if (error == ENOENT && parent_is_there(dir))
		return ctl_error_set(
			e, CTL_USAGE, "--copy: %.900s: cannot create a directory there", dir);
	if (error == ENOENT)
		return ctl_error_set(
			e, CTL_USAGE, "--copy: %.900s: parent directory does not exist", dir);
	if (error != 0 && error != EEXIST)
		return ctl_error_set(e, CTL_USAGE, "--copy: %.900s: %s", dir, strerror(error));
	*fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		return ctl_error_set(e, CTL_USAGE, "--copy: %.900s: %s", dir,
			errno == ENOENT ? "a link to nothing" : strerror(errno));
	if (flock(*fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		close(*fd);
		return ctl_error_set(
			e, CTL_TRANSPORT, "--copy: %.900s: another gpt2ctl copies to it", dir);
	}
	return 0;
}

/* The files of a turn. */
static enum outcome copy_turn(struct copy *k, int turn, bool *incomplete, struct ctl_error *e)
{
	static const char *const names[] = {[COPIED] = "copied",
		[PRESENT] = "present",
		[DIFFERS] = "differs",
		[FAILED] = "failed"};
	enum outcome outcome;
	json_t *file;
	size_t i;

	json_array_foreach(k->files, i, file) {
		struct item item = {.folder = -1, .fd = -1};

		if (turn_of(text_of(file, "path")) != turn)
			continue;
		outcome = turn > 0 ? check_marker(k, text_of(file, "path"), &item) : COPIED;
		if (outcome == COPIED)
			outcome = copy_item(k, file, &item, e);
		if (outcome == BROKEN)
			return BROKEN;
		json_object_set_new(file, "result", json_string(names[outcome]));
		if (outcome == DIFFERS || outcome == FAILED) {
			json_object_set_new(file, "message", format_json_text(item.message));
			*incomplete = true;
		}
	}
	return COPIED;
}

/* ---- partial files that are not needed any more ---- */

/* Whether entry is .NAME.HASH.part: NAME is put into name. */
static bool is_part(const char *entry, char name[NAME_MAX + 1])
{
	const size_t n = strlen(entry), end = HASH_CHARS + strlen(part_end);
	const char *hash;

	if (entry[0] != '.' || n < end + 3 || n - end - 2 > NAME_MAX)
		return false;
	hash = entry + n - end;
	if (hash[-1] != '.' || strspn(hash, "0123456789abcdef") != HASH_CHARS ||
		strcmp(hash + HASH_CHARS, part_end) != 0)
		return false;
	memcpy(name, entry + 1, n - end - 2);
	name[n - end - 2] = '\0';
	return true;
}

/* In folder, whose path is prefix: those of files that are whole now; paths has their paths. */
static void remove_parts_in(int folder, const char *prefix, const json_t *paths)
{
	DIR *dir = fdopendir(folder);
	const struct dirent *entry;
	char name[NAME_MAX + 1], path[PATH_MAX];
	struct stat st;

	if (!dir) {
		close(folder);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (!is_part(entry->d_name, name))
			continue;
		if (snprintf(path, sizeof(path), "%s%s", prefix, name) < (int)sizeof(path) &&
			json_object_get(paths, path) &&
			fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode))
			unlinkat(folder, entry->d_name, 0);
	}
	closedir(dir);
}

/* Also those of other copies with the same names. Each folder is read once. */
static void remove_parts(const struct copy *k)
{
	json_t *paths = json_object(), *folders = json_object(), *file;
	char folder[PATH_MAX];
	const char *key;
	size_t i, bad;

	json_array_foreach(k->files, i, file) {
		const char *path = text_of(file, "path"), *result = text_of(file, "result");

		if (strcmp(result, "copied") != 0 && strcmp(result, "present") != 0)
			continue;
		snprintf(folder, sizeof(folder), "%.*s", (int)folder_bytes(path), path);
		json_object_set_new(paths, path, json_true());
		json_object_set_new(folders, folder, json_true());
	}
	json_object_foreach(folders, key, file) {
		const int entered = enter(k->dir, key, false, &bad);
		const int fd = entered < 0 ? -1 : openat(entered, ".", DIR_FLAGS);

		if (fd >= 0)
			remove_parts_in(fd, key, paths);
		if (entered >= 0)
			close(entered);
	}
	json_decref(paths);
	json_decref(folders);
}

int artifact_copy_all(struct client *c, json_t *result, const char *dir, bool force,
	const struct term *bar, bool *incomplete, struct ctl_error *e)
{
	struct copy k = {.client = c,
		.bar = bar,
		.run = format_int(result, "id", 0),
		.files = json_object_get(result, "files"),
		.missing = json_object_get(result, "missing"),
		.dir_name = dir,
		.force = force,
		.start_ns = clock_mono_ns()};
	enum outcome outcome = COPIED;
	const json_t *file;
	size_t i;

	*incomplete = false;
	json_array_foreach(k.files, i, file)
		k.total = format_sum(k.total, format_int(file, "bytes", 0));
	if (open_dir(dir, &k.dir, e) != 0)
		return e->exit;
	for (int turn = 0; turn <= LAST_TURN && outcome != BROKEN; turn++)
		outcome = copy_turn(&k, turn, incomplete, e);
	remove_parts(&k);
	clear_bar(&k);
	close(k.dir);
	return outcome == BROKEN ? e->exit : 0;
}

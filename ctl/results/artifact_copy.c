#include "ctl/results/artifact_copy.h"

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

#include "ctl/results/copy_marker.h"
#include "ctl/results/copy_target.h"
#include "ctl/print/format.h"
#include "proto/artifact.h"
#include "proto/base64.h"
#include "proto/host/clock.h"
#include "proto/digest.h"

enum {
	DRAW_NS = 100000000,
	BAR_CELLS = 24,
	MESSAGE_BYTES = 256,
	PATH_SHOWN = 120, /* bytes of one in a message */
};

struct copy {
	struct ctl *ctl;
	struct client *client;
	int64_t run;
	const json_t *files; /* all */
	int dir;             /* where to */
	const char *dir_name;
	bool force;
	int64_t done, total; /* bytes, of all files */
	int64_t start_ns, drawn_ns;
	bool drawn;
};

/* One file on its way. */
struct item {
	const char *path, *sha256;
	int64_t bytes;
	bool altered;     /* see artifact_check.h */
	bool replaces;    /* another file */
	int folder;       /* its folder below where to; -1 */
	const char *name; /* in it */
	char part[COPY_TARGET_PART_BYTES];
	int fd; /* the part; -1 */
	struct digest *digest;
	int64_t have;                /* bytes in the part */
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
	const struct term *t = &k->ctl->err;
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
	if (k->ctl->err.tty && !k->ctl->json && now_ns - k->drawn_ns >= DRAW_NS)
		draw(k, item, now_ns);
}

static void clear_bar(struct copy *k)
{
	if (!k->drawn)
		return;
	fputs("\r\033[K", k->ctl->err.file);
	fflush(k->ctl->err.file);
	k->drawn = false;
}

/* ---- where it goes ---- */

static enum outcome open_folder(struct copy *k, struct item *item)
{
	size_t bad;
	const int fd = copy_target_enter(k->dir, item->path, true, &bad);
	const int n = bad < PATH_SHOWN ? (int)bad : PATH_SHOWN;

	if (fd == -ELOOP)
		return fail(item, FAILED,
			"%.*s: a symbolic link, which no copy follows: remove it, or choose "
			"another folder",
			n, item->path);
	if (fd == -ENOTDIR)
		return fail(item, FAILED,
			"%.*s: is there and is no folder: move it, or choose another folder", n,
			item->path);
	if (fd < 0)
		return fail(item, FAILED, "%.*s%s%s", n, item->path, n > 0 ? ": " : "",
			strerror(-fd));
	item->folder = fd;
	item->name = copy_target_name(item->path);
	return COPIED;
}

/* COPIED: the way is free. */
static enum outcome look_at_target(const struct copy *k, struct item *item)
{
	struct stat st;

	if (fstatat(item->folder, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? COPIED : fail(item, FAILED, "%s", strerror(errno));
	if (S_ISLNK(st.st_mode))
		return fail(item, DIFFERS,
			"a symbolic link is there, which no copy follows or replaces: remove it");
	if (!S_ISREG(st.st_mode))
		return fail(item, DIFFERS, "what is there is no regular file");
	if (copy_target_has(item->folder, item->name, item->bytes, item->sha256))
		return PRESENT;
	if (item->altered)
		return fail(item, DIFFERS, "another file is there; what is altered replaces none");
	if (!k->force)
		return fail(item, DIFFERS, "another file is there; --force replaces it");
	item->replaces = true;
	return COPIED;
}

/* Open the part, with what an earlier copy left of the same file. */
static enum outcome open_part(struct copy *k, struct item *item)
{
	struct stat st;
	int rc;

	if (copy_target_part(item->name, item->sha256, item->part) < 0)
		return fail(item, FAILED, "its name is too long");
	item->fd = openat(item->folder, item->part,
		O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
	if (item->fd < 0 && errno == ELOOP)
		return fail(item, FAILED, "%.*s: a symbolic link, which no copy follows: remove it",
			PATH_SHOWN, item->part);
	if (item->fd < 0 || fstat(item->fd, &st) < 0)
		return fail(item, FAILED, "%.*s: %s", PATH_SHOWN, item->part, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return fail(item, FAILED, "%s: is no file of its own", item->part);
	if (flock(item->fd, LOCK_EX | LOCK_NB) < 0)
		return fail(item, FAILED, "another copy is writing it");
	item->have = st.st_size <= item->bytes ? st.st_size : 0;
	item->digest = digest_create();
	rc = item->digest ? copy_target_digest(item->fd, item->digest, item->have) : -ENOMEM;
	if (rc == 0 && ftruncate(item->fd, item->have) < 0)
		rc = -errno;
	if (rc < 0)
		return fail(item, FAILED, "%s: %s", item->part, strerror(-rc));
	advance(k, item, item->have);
	return COPIED;
}

/* ---- pieces ---- */

static enum outcome write_piece(struct item *item, const unsigned char *bytes, size_t n)
{
	if (digest_add(item->digest, bytes, n) < 0)
		return fail(item, FAILED, "libcrypto has no SHA-256 to offer");
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
		ctl_error_set(
			e, CTL_TRANSPORT, "%.200s: gpt2d sent what is no piece of it", item->path);
		return BROKEN;
	}
	if (n == 0)
		return fail(item, FAILED, "it has become shorter while it was copied");
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

/* The part becomes the file. */
static enum outcome settle(struct item *item, bool resumed)
{
	char sha256[65];

	if (digest_finish(item->digest, sha256) < 0)
		return fail(item, FAILED, "libcrypto has no SHA-256 to offer");
	if (strcmp(sha256, item->sha256) != 0) {
		unlinkat(item->folder, item->part, 0);
		return resumed ? AGAIN : fail(item, FAILED, "it changed while it was copied");
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

/* Before what they vouch for is written. */
static enum outcome drop_markers(struct copy *k, struct item *item)
{
	const int rc = copy_marker_drop(k->dir, k->files, item->path, item->replaces);

	return rc == 0 ? COPIED
		       : fail(item, FAILED, "an older " ARTIFACT_COMPLETE " cannot be removed: %s",
				 strerror(-rc));
}

static enum outcome try_item(struct copy *k, struct item *item, struct ctl_error *e)
{
	enum outcome outcome = open_folder(k, item);
	bool resumed = false;

	if (outcome == COPIED)
		outcome = look_at_target(k, item);
	if (outcome == COPIED && copy_marker_turn(item->path) == 0)
		outcome = drop_markers(k, item);
	if (outcome == COPIED)
		outcome = open_part(k, item);
	if (outcome == COPIED) {
		resumed = item->have > 0;
		outcome = fetch(k, item, e);
	}
	if (outcome == COPIED)
		outcome = settle(item, resumed);
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
		return fail(item, FAILED, "gpt2d sent a name that no artifact has");
	if (item->bytes < 0)
		return fail(item, FAILED, "gpt2d sent what is no size");
	if (item->sha256 == NULL)
		return fail(item, FAILED, "gpt2d could not read it");
	if (strlen(item->sha256) != 64 || strspn(item->sha256, "0123456789abcdef") != 64)
		return fail(item, FAILED, "gpt2d sent what is no SHA-256");
	outcome = try_item(k, item, e);
	if (outcome == AGAIN) { /* what was there was not the beginning of it */
		k->done = before;
		outcome = try_item(k, item, e);
	}
	k->done = format_sum(before, item->bytes);
	return outcome;
}

/* A file system like /proc says ENOENT of what cannot be made in it, too. */
static bool parent_is_there(const char *dir)
{
	char *copy = strdup(dir);
	const bool there = copy && access(dirname(copy), F_OK) == 0;

	free(copy);
	return there;
}

/* Alone in it, or two runs would be mixed under one marker; where there are no locks, hopefully. */
static int open_dir(const char *dir, int *fd, struct ctl_error *e)
{
	const int error = mkdir(dir, 0777) < 0 ? errno : 0;

	if (error == ENOENT && parent_is_there(dir))
		return ctl_error_set(
			e, CTL_USAGE, "--copy: %.900s: no folder can be made there", dir);
	if (error == ENOENT)
		return ctl_error_set(e, CTL_USAGE,
			"--copy: %.900s: the folder that it would be in is not there, and is not "
			"made",
			dir);
	if (error != 0 && error != EEXIST)
		return ctl_error_set(e, CTL_USAGE, "--copy: %.900s: %s", dir, strerror(error));
	*fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		return ctl_error_set(e, CTL_USAGE, "--copy: %.900s: %s", dir,
			errno == ENOENT ? "a link that leads nowhere" : strerror(errno));
	if (flock(*fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		close(*fd);
		return ctl_error_set(
			e, CTL_TRANSPORT, "--copy: %.900s: another gpt2ctl copies to it", dir);
	}
	return 0;
}

/* Those whose turn it is. */
static enum outcome copy_turn(
	struct copy *k, json_t *result, int turn, bool *incomplete, struct ctl_error *e)
{
	static const char *const names[] = {[COPIED] = "copied",
		[PRESENT] = "present",
		[DIFFERS] = "differs",
		[FAILED] = "failed"};
	json_t *files = json_object_get(result, "files");
	const json_t *missing = json_object_get(result, "missing");
	enum outcome outcome;
	json_t *file;
	size_t i;

	json_array_foreach(files, i, file) {
		const char *path = json_string_value(json_object_get(file, "path"));
		const char *lacking = NULL, *altered = NULL, *removed = "";
		struct item item = {.folder = -1, .fd = -1};

		if (copy_marker_turn(path ? path : "") != turn)
			continue;
		if (turn > 0)
			altered = copy_marker_lacks(files, path, "altered");
		if (turn > 0)
			lacking = copy_marker_lacks(files, path, "message");
		if (turn > 0 && lacking == NULL)
			lacking = copy_marker_lacks(missing, path, "path");
		if ((altered != NULL || lacking != NULL) &&
			copy_marker_remove_false(k->dir, result, path))
			removed = ", and the one that was there is removed";
		if (altered != NULL)
			outcome = fail(&item, FAILED, "not copied%s: %.*s is altered", removed,
				PATH_SHOWN, altered);
		else if (lacking != NULL)
			outcome = fail(&item, FAILED,
				"not copied%s: it says that all is there, and %.*s is not", removed,
				PATH_SHOWN, lacking);
		else
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

/* ---- what was begun ---- */

/* The files that are there now, their paths the keys of an object, and a folder of them. */
struct there {
	const json_t *paths;
	const char *folder; /* "" or ending in '/' */
};

static bool is_there(const char *name, const void *arg)
{
	const struct there *there = arg;
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s%s", there->folder, name) < (int)sizeof(path) &&
		json_object_get(there->paths, path) != NULL;
}

/* Each folder is read once, however many files are in it. */
static void remove_parts(const struct copy *k)
{
	json_t *paths = json_object(), *folders = json_object(), *file;
	char folder[PATH_MAX];
	const char *key;
	size_t i, bad;

	json_array_foreach(k->files, i, file) {
		const char *path = json_string_value(json_object_get(file, "path"));
		const char *result = json_string_value(json_object_get(file, "result"));

		if (path == NULL || result == NULL ||
			(strcmp(result, "copied") != 0 && strcmp(result, "present") != 0))
			continue;
		snprintf(folder, sizeof(folder), "%.*s", (int)(copy_target_name(path) - path),
			path);
		json_object_set_new(paths, path, json_true());
		json_object_set_new(folders, folder, json_true());
	}
	json_object_foreach(folders, key, file) {
		const struct there there = {paths, key};
		const int fd = copy_target_enter(k->dir, key, false, &bad);

		if (fd < 0)
			continue;
		copy_target_remove_parts(fd, is_there, &there);
		close(fd);
	}
	json_decref(paths);
	json_decref(folders);
}

int artifact_copy_all(struct ctl *ctl, struct client *c, json_t *result, const char *dir,
	bool force, bool *incomplete, struct ctl_error *e)
{
	struct copy k = {.ctl = ctl,
		.client = c,
		.dir_name = dir,
		.force = force,
		.start_ns = clock_mono_ns()};
	enum outcome outcome = COPIED;
	json_t *file;
	size_t i;

	*incomplete = false;
	k.run = format_int(result, "id", 0);
	k.files = json_object_get(result, "files");
	json_array_foreach(json_object_get(result, "files"), i, file)
		k.total = format_sum(k.total, format_int(file, "bytes", 0));
	if (open_dir(dir, &k.dir, e) != 0)
		return e->exit;
	for (int turn = 0; turn <= COPY_MARKER_LAST_TURN && outcome != BROKEN; turn++)
		outcome = copy_turn(&k, result, turn, incomplete, e);
	remove_parts(&k);
	clear_bar(&k);
	close(k.dir);
	return outcome == BROKEN ? e->exit : 0;
}

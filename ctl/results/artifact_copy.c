#include "ctl/results/artifact_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/print/format.h"
#include "ctl/print/progress.h"
#include "proto/artifact.h"
#include "proto/base64.h"
#include "proto/digest.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/text.h"

enum { MESSAGE_BYTES = 256, PATH_SHOWN = 120 /* bytes of a path in a message */ };

struct copy {
	struct client *client;
	struct progress *progress; /* NULL: none is drawn */
	int64_t run;
	const json_t *files, *missing;
	const char *dir;
	bool force;
	int64_t done, total; /* bytes, of all files */
	int64_t start_ns;
	char *piece;
	struct ctl_error *e;
};

/* The file that is being copied. */
struct item {
	struct artifact_source source;
	struct copy *copy;
	const char *path, *sha256;
	int64_t bytes, have;   /* have: written so far */
	bool altered;          /* "altered", see artifacts.c */
	bool broken;           /* the copy cannot continue; e has the reason */
	char target[PATH_MAX]; /* its target */
	struct digest *digest;
	char message[MESSAGE_BYTES]; /* why it was not copied */
};

enum outcome { COPIED, PRESENT, DIFFERS, FAILED, BROKEN };

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

static void show_progress(const struct copy *k, const char *path)
{
	const int64_t now_ns = clock_mono_ns();
	char name[80];
	const struct progress_work work = {.name = name,
		.items = k->done,
		.fraction = k->total > 0 ? (double)k->done / (double)k->total : 1.0,
		.seconds = (double)(now_ns - k->start_ns) / 1e9};

	if (!k->progress)
		return;
	term_clean(path, name, sizeof(name));
	progress_show_work(k->progress, &work, now_ns);
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- the directory ---- */

/* Whether path is a regular file of that size and hash. */
static bool has_file(const char *path, int64_t bytes, const char *wanted)
{
	const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct digest *digest = digest_create();
	char sha256[65] = "", piece[65536];
	struct stat st;
	ssize_t n = 1;

	if (fd >= 0 && digest && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		st.st_size == bytes) {
		while (n > 0 && (n = read(fd, piece, sizeof(piece))) > 0)
			digest_add(digest, piece, (size_t)n);
		digest_finish(digest, sha256);
	}
	digest_destroy(digest);
	if (fd >= 0)
		close(fd);
	return n == 0 && strcmp(sha256, wanted) == 0;
}

/* Creates the folders of the item's target. A link among them is not followed. */
static enum outcome make_folders(struct item *item)
{
	char *at = item->target + strlen(item->copy->dir) + 1;

	while ((at = strchr(at, '/')) != NULL) {
		const int n = (int)(at - item->target - strlen(item->copy->dir) - 1);
		struct stat st;
		int error;

		*at = '\0';
		error = mkdir(item->target, 0777) < 0 && errno != EEXIST ? errno : 0;
		if (lstat(item->target, &st) < 0 && !error)
			error = errno;
		*at++ = '/';
		if (error)
			return fail(item, FAILED, "%.*s: %s", n < PATH_SHOWN ? n : PATH_SHOWN,
				item->path, strerror(error));
		if (S_ISLNK(st.st_mode))
			return fail(item, FAILED,
				"%.*s: a symbolic link, which is not followed: remove it, or "
				"choose another directory",
				n < PATH_SHOWN ? n : PATH_SHOWN, item->path);
		if (!S_ISDIR(st.st_mode))
			return fail(item, FAILED,
				"%.*s: not a directory: move it, or choose another directory",
				n < PATH_SHOWN ? n : PATH_SHOWN, item->path);
	}
	return COPIED;
}

/* COPIED: the file can be copied. */
static enum outcome check_target(struct item *item)
{
	struct stat st;

	if (lstat(item->target, &st) < 0)
		return errno == ENOENT ? COPIED : fail(item, FAILED, "%s", strerror(errno));
	if (S_ISLNK(st.st_mode))
		return fail(item, DIFFERS,
			"exists as a symbolic link, which gpt2ctl does not follow or replace: "
			"remove it");
	if (!S_ISREG(st.st_mode))
		return fail(item, DIFFERS, "exists and is not a regular file");
	if (has_file(item->target, item->bytes, item->sha256))
		return PRESENT;
	if (item->altered)
		return fail(item, DIFFERS,
			"exists with other content; an altered file replaces no file");
	if (!item->copy->force)
		return fail(item, DIFFERS, "exists with other content; --force replaces it");
	return COPIED;
}

/* ---- RUN_COMPLETE.txt, which vouches for the files beside and below it ---- */

enum { LAST_TURN = 2 };

/* Markers are copied last: a segment's in turn 1, the run's in turn 2. */
static int turn_of(const char *path)
{
	if (strcmp(name_of(path), ARTIFACT_COMPLETE) != 0)
		return 0;
	return strchr(path, '/') ? 1 : LAST_TURN;
}

/* Before the item is written: removes the markers beside and above it. */
static enum outcome drop_markers(struct item *item)
{
	char marker[sizeof(item->target) + sizeof(ARTIFACT_COMPLETE)];
	const char *rest = item->target + strlen(item->copy->dir);

	for (; rest; rest = strchr(rest + 1, '/')) {
		snprintf(marker, sizeof(marker), "%.*s/" ARTIFACT_COMPLETE,
			(int)(rest - item->target), item->target);
		if (unlink(marker) < 0 && errno != ENOENT)
			return fail(item, FAILED,
				"cannot remove an older " ARTIFACT_COMPLETE ": %s",
				strerror(errno));
	}
	return COPIED;
}

/* The first of files with a member `key` in the marker's folder or below it; NULL: none. */
static const char *find_below(const json_t *files, const char *marker, const char *key)
{
	const size_t folder = (size_t)(name_of(marker) - marker);
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
		if (json_object_get(file, key) &&
			strncmp(rpc_text(file, "path"), marker, folder) == 0)
			return rpc_text(file, "path");
	return NULL;
}

/* A marker whose files are not all copied is not copied: COPIED, or FAILED with item's message. */
static enum outcome check_marker(struct item *item)
{
	const struct copy *k = item->copy;
	const char *altered = find_below(k->files, item->path, "altered");
	const char *lacking = find_below(k->files, item->path, "message");

	if (!lacking)
		lacking = find_below(k->missing, item->path, "path");
	if (!altered && !lacking)
		return COPIED;
	return fail(item, FAILED, "not copied: %.*s is %s", PATH_SHOWN, altered ? altered : lacking,
		altered ? "altered" : "not copied");
}

/* ---- pieces ---- */

int artifact_copy_read(struct client *c, int64_t run, const char *path, int64_t offset,
	int64_t bytes, char **out, size_t *n, struct ctl_error *e)
{
	json_t *reply;
	const json_t *data;
	char *piece;
	size_t got = 0;
	int exit = client_request(c, METHOD_ARTIFACT_READ,
		json_pack("{s:I, s:s, s:I, s:I}", "id", (json_int_t)run, "path", path, "offset",
			(json_int_t)offset, "bytes", (json_int_t)bytes),
		CLIENT_CHECK_S, &reply, e);

	if (exit)
		return exit;
	data = json_object_get(reply, "data");
	piece = memory_zeroed(1, json_string_length(data) + 1);
	if (!json_is_string(data) ||
		base64_decode(json_string_value(data), json_string_length(data),
			(unsigned char *)piece, &got) < 0 ||
		(int64_t)got > bytes)
		exit = ctl_error_set(e, CTL_TRANSPORT, "%.200s: gpt2d sent an invalid piece", path);
	json_decref(reply);
	if (exit) {
		free(piece);
		return exit;
	}
	piece[got] = '\0';
	*out = piece;
	*n = got;
	return 0;
}

static int end_of(struct item *item)
{
	char sha256[65] = "";

	digest_finish(item->digest, sha256);
	if (strcmp(sha256, item->sha256) == 0)
		return 0;
	fail(item, FAILED, "the file changed while it was copied");
	return -ESTALE;
}

/* The file's next piece, from gpt2d: see artifact_write_from. */
static int next_piece(struct artifact_source *source, const char **bytes, size_t *n)
{
	struct item *item = (struct item *)source;
	struct copy *k = item->copy;
	const int64_t left = item->bytes - item->have;
	int exit;

	*n = 0;
	if (left == 0)
		return end_of(item);
	free(k->piece);
	k->piece = NULL;
	exit = artifact_copy_read(k->client, k->run, item->path, item->have,
		left < PROTOCOL_ARTIFACT_PIECE ? left : PROTOCOL_ARTIFACT_PIECE, &k->piece, n,
		k->e);
	item->broken = exit && exit != CTL_NO_SUCH_RUN && exit != CTL_USAGE;
	if (exit && !item->broken) {
		fail(item, FAILED, "%.200s", k->e->message);
		ctl_error_clear(k->e);
	}
	if (exit)
		return -EIO;
	if (*n == 0) {
		fail(item, FAILED, "the file became shorter while it was copied");
		return -ENODATA;
	}
	digest_add(item->digest, k->piece, *n);
	*bytes = k->piece;
	item->have += (int64_t)*n;
	k->done += (int64_t)*n;
	show_progress(k, item->path);
	return 0;
}

/* ---- files ---- */

static enum outcome write_item(struct item *item)
{
	struct copy *k = item->copy;
	char *name = strrchr(item->target, '/');
	int64_t written;
	int rc;

	item->digest = digest_create();
	*name = '\0';
	rc = item->digest ? artifact_write_from(item->target, name + 1, &item->source, 0, &written)
			  : -ENOMEM;
	digest_destroy(item->digest);
	if (item->broken)
		return BROKEN;
	if (rc == -ENOSPC) {
		ctl_error_set(k->e, CTL_TRANSPORT, "--copy: %.500s: %.200s: %s", k->dir, item->path,
			strerror(-rc));
		return BROKEN;
	}
	if (rc < 0 && !item->message[0])
		return fail(item, FAILED, "%s", strerror(-rc));
	return rc < 0 ? FAILED : COPIED;
}

static enum outcome copy_item(struct item *item)
{
	struct copy *k = item->copy;
	enum outcome outcome;

	if (!artifact_path_valid(item->path))
		return fail(item, FAILED, "gpt2d sent a name that no artifact has");
	if (item->bytes < 0)
		return fail(item, FAILED, "gpt2d sent an invalid size");
	if (!*item->sha256)
		return fail(item, FAILED, "gpt2d could not read the file");
	if (snprintf(item->target, sizeof(item->target), "%s/%s", k->dir, item->path) >=
		(int)sizeof(item->target))
		return fail(item, FAILED, "path too long");
	outcome = make_folders(item);
	if (outcome == COPIED)
		outcome = check_target(item);
	if (outcome == COPIED && turn_of(item->path) == 0)
		outcome = drop_markers(item);
	if (outcome == COPIED)
		outcome = write_item(item);
	k->done += item->bytes - item->have;
	return outcome;
}

static int make_dir(const char *dir, struct ctl_error *e)
{
	const char *why = NULL;
	struct stat st;

	if (mkdir(dir, 0777) == 0)
		return 0;
	if (errno == ENOENT)
		why = "parent directory does not exist";
	else if (errno != EEXIST)
		why = strerror(errno);
	else if (stat(dir, &st) < 0)
		why = errno == ENOENT ? "a link to nothing" : strerror(errno);
	else if (!S_ISDIR(st.st_mode))
		why = strerror(ENOTDIR);
	return why ? ctl_error_set(e, CTL_USAGE, "--copy: %.900s: %s", dir, why) : 0;
}

/* Copies the files of a turn: false if the copy cannot continue. */
static bool copy_turn(struct copy *k, int turn, bool *incomplete)
{
	static const char *const names[] = {[COPIED] = "copied",
		[PRESENT] = "present",
		[DIFFERS] = "differs",
		[FAILED] = "failed"};
	enum outcome outcome;
	json_t *file;
	size_t i;

	json_array_foreach(k->files, i, file) {
		struct item item = {.source = {.next = next_piece},
			.copy = k,
			.path = rpc_text(file, "path"),
			.sha256 = rpc_text(file, "sha256"),
			.bytes = format_int(file, "bytes", -1),
			.altered = json_object_get(file, "altered") != NULL};
		if (turn_of(item.path) != turn)
			continue;
		outcome = turn > 0 ? check_marker(&item) : COPIED;
		if (outcome == COPIED)
			outcome = copy_item(&item);
		if (outcome == BROKEN)
			return false;
		json_object_set_new(file, "result", json_string(names[outcome]));
		if (outcome == DIFFERS || outcome == FAILED) {
			json_object_set_new(file, "message", text_json(item.message));
			*incomplete = true;
		}
	}
	return true;
}

int artifact_copy_all(struct client *c, json_t *result, const char *dir, bool force,
	const struct term *bar, bool *incomplete, struct ctl_error *e)
{
	struct progress progress;
	struct copy k = {.client = c,
		.progress = bar ? &progress : NULL,
		.run = format_int(result, "id", 0),
		.files = json_object_get(result, "files"),
		.missing = json_object_get(result, "missing"),
		.dir = dir,
		.force = force,
		.start_ns = clock_mono_ns(),
		.e = e};
	const json_t *file;
	bool can_copy = true;
	size_t i;

	*incomplete = false;
	if (make_dir(dir, e) != 0)
		return e->exit;
	json_array_foreach(k.files, i, file)
		k.total += format_int(file, "bytes", 0);
	if (bar)
		progress_init(&progress, bar);
	for (int turn = 0; turn <= LAST_TURN && can_copy; turn++)
		can_copy = copy_turn(&k, turn, incomplete);
	if (bar)
		progress_clear(&progress);
	free(k.piece);
	return can_copy ? 0 : e->exit;
}

#include "daemon/runs/artifacts.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/control/reply.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/runs/run_files.h"
#include "daemon/runs/worker.h"
#include "proto/artifact.h"
#include "proto/base64.h"
#include "proto/checkpoint.h"
#include "proto/digest.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum {
	SEGMENTS_STANDARD = 64,
	SEGMENTS_MAX = 1000,
	/* a page ends after the segment in which it reaches this many files */
	PAGE_FILES = 4096,
	TURN_BYTES = 4 << 20, /* hashed at a time, before another job gets its turn */
	READ_BYTES = 64 << 10,
};

/* gpt2d cannot read the files below dir. */
static void refuse_place(struct reply *reply, int64_t id, const char *dir, int rc)
{
	if (rc == -ELOOP)
		reply_error(reply, PROTOCOL_NO_SUCH_FILE, NULL,
			"run %lld: %.700s is a link, and gpt2d follows no links: put the folder "
			"in its place",
			(long long)id, dir);
	else
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "run %lld: %.700s: %s", (long long)id,
			dir, strerror(-rc));
}

/* ---- the list ---- */

struct listing {
	struct worker_job job;
	struct artifacts_options options;
	struct reply *reply;
	int64_t id, segment; /* 0: all */
	json_t *show;        /* of record_show */
	json_t *files, *missing;
	/* of show's segments, the next or current one; -1: the top of an experiment */
	int64_t row;
	bool finished;         /* the page is complete */
	bool listed;           /* found holds the row's files */
	char prefix[PATH_MAX]; /* of the row's files, below the run's directory */
	struct run_files found;
	size_t file; /* of found, the next or current one */
	int64_t left_out;
	int fd; /* being hashed; -1: none */
	int64_t unhashed;
	struct digest *digest;
};

static void listing_free(struct listing *l)
{
	if (l->fd >= 0)
		close(l->fd);
	digest_destroy(l->digest);
	run_files_finish(&l->found);
	json_decref(l->show);
	json_decref(l->files);
	json_decref(l->missing);
	free(l);
}

static const char *run_dir_of(const struct listing *l)
{
	return rpc_text(json_object_get(l->show, "run"), "dir");
}

static json_t *row_of(const struct listing *l)
{
	return l->row < 0 ? NULL
			  : json_array_get(json_object_get(l->show, "segments"), (size_t)l->row);
}

/* One segment, which has the run's directory as its own. */
static bool is_single(const struct listing *l)
{
	json_t *first = json_array_get(json_object_get(l->show, "segments"), 0);
	const char *dir = rpc_text(first, "dir");

	return rpc_integer(json_object_get(l->show, "run"), "segments", 1) == 1 &&
		(dir[0] == '\0' || strcmp(dir, run_dir_of(l)) == 0);
}

static json_t *segment_number(const struct listing *l)
{
	json_t *row = row_of(l);

	return row ? json_incref(json_object_get(row, "segment")) : json_null();
}

/* The size that the engine reported for this name; NULL: none. */
static json_t *announced_bytes(const struct listing *l, const char *path)
{
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(row_of(l), "artifacts"), i, entry)
		if (strcmp(rpc_text(entry, "path"), path) == 0)
			return json_object_get(entry, "bytes");
	return NULL;
}

static int join(char out[PATH_MAX], const char *prefix, const char *name)
{
	return snprintf(out, PATH_MAX, "%s%s", prefix, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* How it ended, if it is not done; NULL: it is done or still may be. */
static const char *ended_undone(const json_t *run_or_segment)
{
	static const enum run_state undone[] = {RUN_FAILED, RUN_CANCELLED, RUN_INTERRUPTED};
	const char *state = rpc_text(run_or_segment, "state");

	for (size_t i = 0; i < sizeof(undone) / sizeof(undone[0]); i++)
		if (strcmp(state, run_state_name(undone[i])) == 0)
			return state;
	return NULL;
}

/*
 * Why a marker in the folder of a run that is not done is invalid: a failing disk, or somebody, has
 * left it there. NULL: nothing is wrong with this file.
 */
static json_t *false_marker(const struct listing *l, const char *name)
{
	const char *ended = ended_undone(l->row < 0 ? json_object_get(l->show, "run") : row_of(l));

	if (ended == NULL || strcmp(name, ARTIFACT_COMPLETE) != 0)
		return NULL;
	return json_sprintf("it states that the %s is done, but the state is %s",
		l->row < 0 ? "run" : "segment", ended);
}

/* sha256 NULL: it could not be read. */
static int add_file(struct listing *l, const char *sha256)
{
	const struct run_file *f = &l->found.file[l->file];
	char path[PATH_MAX];
	json_t *row;

	if (join(path, l->prefix, f->path) < 0)
		return -ENAMETOOLONG;
	row = json_pack("{ss so sI sO? ss? so*}", "path", path, "segment", segment_number(l),
		"bytes", (json_int_t)f->bytes, "announced", announced_bytes(l, f->path), "sha256",
		sha256, "altered", false_marker(l, f->path));
	l->file++;
	json_array_append_new(l->files, row);
	return 0;
}

static void close_file(struct listing *l)
{
	close(l->fd);
	l->fd = -1;
	digest_destroy(l->digest);
	l->digest = NULL;
}

static int open_file(struct listing *l)
{
	struct run_file *f = &l->found.file[l->file];
	char path[PATH_MAX];
	int rc = join(path, l->prefix, f->path);

	if (rc == 0)
		rc = run_files_open(run_dir_of(l), path, &l->fd, &f->bytes);
	if (rc == -ENOENT) {
		l->file++; /* it was removed meanwhile */
		return 0;
	}
	if (rc == -ELOOP)
		return rc;
	if (rc < 0)
		return add_file(l, NULL);
	l->unhashed = f->bytes;
	l->digest = digest_create();
	return l->digest ? 0 : -EIO;
}

/* Hashes a part of the open file; reduces *budget. */
static int hash_some(struct listing *l, int64_t *budget)
{
	char bytes[READ_BYTES], sha256[65];
	ssize_t n = 0;
	int rc;

	if (l->unhashed > 0) {
		n = read(l->fd, bytes,
			l->unhashed < READ_BYTES ? (size_t)l->unhashed : (size_t)READ_BYTES);
		if (n <= 0) { /* it cannot be read, or has become shorter */
			close_file(l);
			return add_file(l, NULL);
		}
		rc = digest_add(l->digest, bytes, (size_t)n);
		if (rc < 0)
			return rc;
		l->unhashed -= n;
		*budget -= n;
	}
	if (l->unhashed > 0)
		return 0;
	rc = digest_finish(l->digest, sha256);
	close_file(l);
	return rc < 0 ? rc : add_file(l, sha256);
}

static const char *row_dir_of(const struct listing *l)
{
	return l->row < 0 ? run_dir_of(l) : rpc_text(row_of(l), "dir");
}

static int list_row(struct listing *l)
{
	const char *run_dir = run_dir_of(l), *dir = row_dir_of(l);
	const size_t n = strlen(run_dir);
	int rc;

	l->listed = true;
	l->file = 0;
	l->prefix[0] = '\0';
	if (dir[0] == '\0')
		return 0; /* it has not started */
	if (strncmp(dir, run_dir, n) != 0 || (dir[n] != '/' && dir[n] != '\0'))
		return 0; /* of an earlier attempt */
	if (dir[n] == '/' && snprintf(l->prefix, sizeof(l->prefix), "%s/", dir + n + 1) >= PATH_MAX)
		return -ENAMETOOLONG;
	rc = run_files_list(dir, l->row < 0 ? "segments" : CHECKPOINT_FOLDER, &l->found);
	return rc == -ENOENT ? 0 : rc;
}

static bool was_found(const struct listing *l, const char *path)
{
	for (size_t i = 0; i < l->found.n; i++)
		if (strcmp(l->found.file[i].path, path) == 0)
			return true;
	return false;
}

static int end_row(struct listing *l)
{
	char path[PATH_MAX];
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(row_of(l), "artifacts"), i, entry) {
		if (was_found(l, rpc_text(entry, "path")) ||
			join(path, l->prefix, rpc_text(entry, "path")) < 0)
			continue;
		json_array_append_new(l->missing,
			json_pack("{ss so sO?}", "path", path, "segment", segment_number(l),
				"bytes", json_object_get(entry, "bytes")));
	}
	l->left_out += (int64_t)l->found.left_out;
	run_files_finish(&l->found);
	l->listed = false;
	l->row++;
	if (json_array_size(l->files) >= PAGE_FILES && l->row > 0 && row_of(l) != NULL) {
		json_object_set_new(
			l->show, "next", json_integer(rpc_integer(row_of(l), "segment", 0) - 1));
		l->finished = true;
	}
	return 0;
}

static int listing_work(struct worker_job *job)
{
	struct listing *l = (struct listing *)job;
	int64_t budget = TURN_BYTES;
	int rc = 0;

	while (rc == 0 && !l->finished && budget > 0) {
		budget -= 4096; /* names cost time as well */
		if (l->fd >= 0)
			rc = hash_some(l, &budget);
		else if (l->listed && l->file < l->found.n)
			rc = open_file(l);
		else if (l->listed)
			rc = end_row(l);
		else if (l->row < 0 || row_of(l) != NULL)
			rc = list_row(l);
		else
			l->finished = true;
	}
	return rc;
}

static void listing_done(struct worker_job *job, int rc)
{
	struct listing *l = (struct listing *)job;
	struct reply *reply = l->reply;
	json_t *run = json_object_get(l->show, "run");

	if (reply_wanted(reply) && rc == 0 && !l->finished) {
		worker_add(l->options.worker, &l->job);
		return;
	}
	if (rc == -E2BIG)
		reply_error(reply, PROTOCOL_INTERNAL, NULL,
			"run %lld: more than %d files in one of its directories", (long long)l->id,
			RUN_FILES_MAX);
	else if (rc < 0)
		refuse_place(reply, l->id, l->found.n > 0 ? run_dir_of(l) : row_dir_of(l), rc);
	else
		reply_result(reply,
			json_pack("{sI sO sO sO sO sO sO sI sO}", "id", (json_int_t)l->id, "name",
				json_object_get(run, "name"), "state",
				json_object_get(run, "state"), "reason",
				json_object_get(run, "reason"), "dir", json_object_get(run, "dir"),
				"files", l->files, "missing", l->missing, "left_out",
				(json_int_t)l->left_out, "next", json_object_get(l->show, "next")));
	listing_free(l);
}

static void on_show(void *arg, int rc, json_t *result)
{
	struct listing *l = arg;
	struct reply *reply = l->reply;
	const int64_t segments = rpc_integer(json_object_get(result, "run"), "segments", 0);

	l->show = result;
	if (reply_wanted(reply) && rc == 0 && l->segment <= segments) {
		if (l->segment > 0)
			json_object_set_new(result, "next", json_null());
		if (l->row < 0 && is_single(l))
			l->row = 0;
		worker_add(l->options.worker, &l->job);
		return;
	}
	if (rc < 0)
		reply_unread(reply, l->options.store, l->id, rc);
	else
		reply_error(reply, PROTOCOL_INVALID_PARAMS,
			json_pack("{sI}", "segments", (json_int_t)segments),
			"segment: run %lld has %lld segments, not segment %lld", (long long)l->id,
			(long long)segments, (long long)l->segment);
	listing_free(l);
}

void artifacts_list(const struct artifacts_options *o, struct reply *reply, json_t *params)
{
	int64_t after = rpc_integer(params, "after", 0);
	int64_t limit = rpc_integer(params, "limit", SEGMENTS_STANDARD);
	int64_t segment = rpc_integer(params, "segment", 0);
	struct listing *l;

	if (limit < 1 || limit > SEGMENTS_MAX || after < 0 || segment < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"limit: 1 to %d is allowed; after and segment: 0 and above", SEGMENTS_MAX);
		return;
	}
	l = memory_zeroed(1, sizeof(*l));
	l->job.work = listing_work;
	l->job.done = listing_done;
	l->options = *o;
	l->reply = reply;
	l->id = rpc_integer(params, "id", 0);
	l->segment = segment;
	l->row = segment == 0 && after == 0 ? -1 : 0;
	l->fd = -1;
	l->files = json_array();
	l->missing = json_array();
	record_show(o->store, o->state_dir, l->id, segment == 0 ? after : segment - 1,
		segment == 0 ? limit : 1, on_show, l);
}

/* ---- a piece of a file ---- */

struct reading {
	struct worker_job job;
	struct artifacts_options options;
	struct reply *reply;
	int64_t id, offset, wanted, size;
	size_t n;
	char *path;
	unsigned char *bytes;
	char *text; /* they, base64 */
	char dir[PATH_MAX];
};

static void reading_free(struct reading *r)
{
	free(r->path);
	free(r->bytes);
	free(r->text);
	free(r);
}

static int reading_work(struct worker_job *job)
{
	struct reading *r = (struct reading *)job;
	int fd, rc = run_files_open(r->dir, r->path, &fd, &r->size);
	int64_t left;

	if (rc < 0)
		return rc;
	left = r->size - r->offset;
	r->n = (size_t)(r->wanted < left ? r->wanted : left);
	rc = left < 0 ? -ERANGE : file_read_at(fd, r->bytes, r->n, r->offset);
	close(fd);
	if (rc == 0) {
		r->text = memory_zeroed(base64_length(r->n) + 1, 1);
		base64_encode(r->bytes, r->n, r->text);
	}
	return rc;
}

static json_t *piece_json(const struct reading *r)
{
	return json_pack("{sI ss sI sI sI ss}", "id", (json_int_t)r->id, "path", r->path, "offset",
		(json_int_t)r->offset, "bytes", (json_int_t)r->n, "size", (json_int_t)r->size,
		"data", r->text);
}

static void reading_done(struct worker_job *job, int rc)
{
	struct reading *r = (struct reading *)job;
	struct reply *reply = r->reply;

	if (rc == -ENOENT)
		reply_error(reply, PROTOCOL_NO_SUCH_FILE, NULL, "run %lld: %.200s: no such file",
			(long long)r->id, r->path);
	else if (rc == -ELOOP)
		refuse_place(reply, r->id, r->dir, rc);
	else if (rc == -ERANGE)
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"offset: %lld is beyond the end of %.200s, which has %lld bytes",
			(long long)r->offset, r->path, (long long)r->size);
	else if (rc < 0)
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "run %lld: %.200s: %s",
			(long long)r->id, r->path, strerror(-rc));
	else
		reply_result(reply, piece_json(r));
	reading_free(r);
}

static void on_place(void *arg, int rc, json_t *result)
{
	struct reading *r = arg;

	snprintf(r->dir, sizeof(r->dir), "%s", rpc_text(json_object_get(result, "run"), "dir"));
	json_decref(result);
	if (rc == 0) {
		worker_add(r->options.worker, &r->job);
		return;
	}
	reply_unread(r->reply, r->options.store, r->id, rc);
	reading_free(r);
}

void artifacts_read(const struct artifacts_options *o, struct reply *reply, json_t *params)
{
	const char *path = rpc_text(params, "path");
	int64_t bytes = rpc_integer(params, "bytes", PROTOCOL_ARTIFACT_PIECE);
	struct reading *r;

	if (!artifact_path_valid(path)) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"path: \"%.200s\" cannot be a file of a run; list the files with: gpt2ctl "
			"artifacts",
			path);
		return;
	}
	if (strstr(path, CHECKPOINT_FOLDER "/") != NULL) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"path: \"%.200s\" is part of a checkpoint, and gpt2d sends none: read it "
			"in the run's folder (gpt2ctl show %lld)",
			path, (long long)rpc_integer(params, "id", 0));
		return;
	}
	if (bytes < 1 || bytes > PROTOCOL_ARTIFACT_PIECE || rpc_integer(params, "offset", 0) < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"bytes: 1 to %d is allowed; offset: 0 and above", PROTOCOL_ARTIFACT_PIECE);
		return;
	}
	r = memory_zeroed(1, sizeof(*r));
	r->job.work = reading_work;
	r->job.done = reading_done;
	r->options = *o;
	r->reply = reply;
	r->id = rpc_integer(params, "id", 0);
	r->offset = rpc_integer(params, "offset", 0);
	r->wanted = bytes;
	r->path = memory_text(path);
	r->bytes = memory_zeroed((size_t)bytes, 1);
	record_show(o->store, o->state_dir, r->id, -1, 1, on_place, r);
}

#include "daemon/runs/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/reply.h"
#include "daemon/runs/worker.h"
#include "daemon/store/record.h"
#include "proto/checkpoint.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

enum { FOLDERS_MAX = 64 };

/* ---- the folders of a run ---- */

json_t *checkpoints_folders(const struct run *run, const char *state_dir, int64_t attempt)
{
	struct run place = *run;
	json_t *folders = json_array();
	char dir[PATH_MAX];

	for (place.attempt = attempt; place.attempt > 0 && json_array_size(folders) < FOLDERS_MAX;
		place.attempt--)
		if (run_dir(&place, state_dir, dir, sizeof(dir)) == 0)
			json_array_append_new(folders, json_sprintf("%s/" CHECKPOINT_FOLDER, dir));
	return folders;
}

struct question {
	const char *state_dir;
	void (*done)(void *arg, int rc, json_t *folders);
	void *arg;
};

static void on_show(void *arg, int rc, json_t *result)
{
	struct question *q = arg;
	const json_t *row = json_object_get(result, "run");
	const char *name = json_string_value(json_object_get(row, "name"));
	struct run run = {.id = json_integer_value(json_object_get(row, "id")),
		.attempt = json_integer_value(json_object_get(row, "attempt"))};

	snprintf(run.name, sizeof(run.name), "%s", name ? name : "");
	q->done(q->arg, rc, rc == 0 ? checkpoints_folders(&run, q->state_dir, run.attempt) : NULL);
	json_decref(result);
	free(q);
}

void checkpoints_find(struct store *store, const char *state_dir, int64_t id,
	void (*done)(void *arg, int rc, json_t *folders), void *arg)
{
	struct question *q = memory_zeroed(1, sizeof(*q));

	*q = (struct question){.state_dir = state_dir, .done = done, .arg = arg};
	record_show(store, state_dir, id, 0, 1, on_show, q);
}

/* ---- the newest checkpoint ---- */

struct search {
	struct worker_job job;
	struct checkpoints_options options;
	struct reply *reply;
	json_t *folders;
	struct checkpoints_last last;
	void (*found)(void *arg, const struct checkpoints_last *last);
	void *arg;
};

/* 0: found; -ENOENT; or another negative errno. */
static int search_folder(struct search *s, const char *folder)
{
	char real[PATH_MAX];
	int64_t *steps;
	int n = checkpoint_list(folder, &steps);

	if (n < 0)
		return n;
	/* whoever may read checkpoint.dir need not be allowed to read the link to it */
	if (n > 0 && realpath(folder, real) == NULL)
		n = -errno;
	if (n > 0) {
		s->last.step = steps[0];
		snprintf(s->last.dir, sizeof(s->last.dir), "%.4000s/" CHECKPOINT_STEP "%lld", real,
			(long long)steps[0]);
	}
	free(steps);
	return n > 0 ? 0 : n < 0 ? n : -ENOENT;
}

static int is_segment(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The segments of an experiment, the last one first: their names begin with their numbers. */
static int search_segments(struct search *s, const char *folder)
{
	const int run_dir = (int)(strlen(folder) - strlen("/" CHECKPOINT_FOLDER));
	char segments[PATH_MAX], one[PATH_MAX];
	struct dirent **names;
	int n, rc = -ENOENT;

	if (snprintf(segments, sizeof(segments), "%.*s/segments", run_dir, folder) >=
		(int)sizeof(segments))
		return -ENAMETOOLONG;
	n = scandir(segments, &names, is_segment, versionsort);
	if (n < 0)
		return -errno;
	while (n-- > 0) {
		if (rc == -ENOENT &&
			snprintf(one, sizeof(one), "%s/%s/" CHECKPOINT_FOLDER, segments,
				names[n]->d_name) < (int)sizeof(one))
			rc = search_folder(s, one);
		free(names[n]);
	}
	free(names);
	return rc;
}

static int search_work(struct worker_job *job)
{
	struct search *s = (struct search *)job;
	const json_t *folder;
	int rc = -ENOENT;
	size_t i;

	json_array_foreach(s->folders, i, folder) {
		rc = search_folder(s, json_string_value(folder));
		if (rc == -ENOENT)
			rc = search_segments(s, json_string_value(folder));
		if (rc != -ENOENT)
			break;
	}
	return rc;
}

static void search_done(struct worker_job *job, int rc)
{
	struct search *s = (struct search *)job;

	if (rc == -ENOENT)
		reply_error(s->reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: has saved no checkpoint (checkpoint.at_end saves one when the "
			"run is done)\n"
			"if its spec does not set that: gpt2ctl rerun %lld --set "
			"checkpoint.at_end=true\n"
			"if it does, the log says why: gpt2ctl logs %lld",
			(long long)s->last.run, (long long)s->last.run, (long long)s->last.run);
	else if (rc < 0)
		reply_error(s->reply, rc == -ECANCELED ? PROTOCOL_BUSY : PROTOCOL_INTERNAL, NULL,
			"run %lld: its checkpoints: %s", (long long)s->last.run,
			rc == -ECANCELED ? "gpt2d is stopping" : strerror(-rc));
	s->found(s->arg, rc == 0 ? &s->last : NULL);
	json_decref(s->folders);
	free(s);
}

static void on_folders(void *arg, int rc, json_t *folders)
{
	struct search *s = arg;

	if (rc < 0) {
		reply_unread(s->reply, s->options.store, s->last.run, rc);
		s->found(s->arg, NULL);
		free(s);
		return;
	}
	s->folders = folders;
	worker_add(s->options.worker, &s->job);
}

void checkpoints_find_last(const struct checkpoints_options *options, struct reply *reply,
	int64_t run, void (*found)(void *arg, const struct checkpoints_last *last), void *arg)
{
	struct search *s = memory_zeroed(1, sizeof(*s));

	*s = (struct search){
		.job = {.work = search_work, .done = search_done},
		.options = *options,
		.reply = reply,
		.last.run = run,
		.found = found,
		.arg = arg,
	};
	checkpoints_find(options->store, options->state_dir, run, on_folders, s);
}

static void on_last(void *arg, const struct checkpoints_last *last)
{
	if (last)
		reply_result(arg,
			json_pack("{sI sI ss}", "id", (json_int_t)last->run, "step",
				(json_int_t)last->step, "dir", last->dir));
}

void checkpoints_request(
	const struct checkpoints_options *options, struct reply *reply, json_t *params)
{
	checkpoints_find_last(options, reply, rpc_integer(params, "id", 0), on_last, reply);
}

#include "daemon/runs/last_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/reply.h"
#include "daemon/control/request.h"
#include "daemon/runs/worker.h"
#include "daemon/store/record.h"
#include "daemon/store/run.h"
#include "proto/checkpoint.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"

struct search {
	struct worker_job job;
	struct last_checkpoint_options options;
	struct reply *reply;
	struct run run; /* id, name and attempt alone */
	struct last_checkpoint checkpoint;
	void (*found)(void *arg, const struct last_checkpoint *checkpoint);
	void *arg;
};

/* 0: found; -ENOENT; or another negative errno. */
static int look_in(struct search *s, const char *segment_dir)
{
	struct last_checkpoint *c = &s->checkpoint;
	char folder[PATH_MAX];
	int64_t *steps;
	int n;

	if (snprintf(folder, sizeof(folder), "%s/" CHECKPOINT_FOLDER, segment_dir) >=
		(int)sizeof(folder))
		return -ENAMETOOLONG;
	n = checkpoint_list(folder, &steps);
	if (n < 0)
		return n;
	if (n > 0) {
		c->step = steps[0];
		snprintf(c->dir, sizeof(c->dir), "%.4000s/" CHECKPOINT_STEP "%lld", folder,
			(long long)c->step);
	}
	free(steps);
	return n > 0 ? 0 : -ENOENT;
}

static int is_segment(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The segments of an experiment, the last one first: their names begin with their numbers. */
static int look_in_segments(struct search *s, const char *dir)
{
	char segments[PATH_MAX], one[PATH_MAX];
	struct dirent **names;
	int n, rc = -ENOENT;

	if (snprintf(segments, sizeof(segments), "%s/segments", dir) >= (int)sizeof(segments))
		return -ENAMETOOLONG;
	n = scandir(segments, &names, is_segment, alphasort);
	if (n < 0)
		return -errno;
	while (n-- > 0) {
		if (rc == -ENOENT &&
			snprintf(one, sizeof(one), "%s/%s", segments, names[n]->d_name) <
				(int)sizeof(one))
			rc = look_in(s, one);
		free(names[n]);
	}
	free(names);
	return rc;
}

static int search_work(struct worker_job *job)
{
	struct search *s = (struct search *)job;
	char dir[PATH_MAX];
	int rc = -ENOENT;

	for (; s->run.attempt > 0 && rc == -ENOENT; s->run.attempt--) {
		rc = run_dir(&s->run, s->options.state_dir, dir, sizeof(dir));
		if (rc == 0)
			rc = look_in(s, dir);
		if (rc == -ENOENT)
			rc = look_in_segments(s, dir);
	}
	return rc;
}

static void search_done(struct worker_job *job, int rc)
{
	struct search *s = (struct search *)job;
	const struct last_checkpoint *found = rc == 0 ? &s->checkpoint : NULL;

	if (rc == -ENOENT)
		reply_error(s->reply, PROTOCOL_WRONG_STATE, NULL,
			"run %lld: has saved no checkpoint\n"
			"set checkpoint.at_end to true in its spec, and run it again",
			(long long)s->run.id);
	else if (rc < 0)
		reply_error(s->reply, rc == -ECANCELED ? PROTOCOL_BUSY : PROTOCOL_INTERNAL, NULL,
			"run %lld: its checkpoints: %s", (long long)s->run.id,
			rc == -ECANCELED ? "gpt2d is stopping" : strerror(-rc));
	s->found(s->arg, found);
	free(s);
}

static void on_show(void *arg, int rc, json_t *result)
{
	struct search *s = arg;
	const json_t *run = json_object_get(result, "run");
	const char *name = json_string_value(json_object_get(run, "name"));

	if (rc < 0) {
		request_unread(s->reply, s->options.store, s->run.id, rc);
		s->found(s->arg, NULL);
		free(s);
		return;
	}
	snprintf(s->run.name, sizeof(s->run.name), "%s", name ? name : "");
	s->run.attempt = json_integer_value(json_object_get(run, "attempt"));
	json_decref(result);
	worker_add(s->options.worker, &s->job);
}

void last_checkpoint_find(const struct last_checkpoint_options *options, struct reply *reply,
	int64_t run, void (*found)(void *arg, const struct last_checkpoint *checkpoint), void *arg)
{
	struct search *s = memory_zeroed(1, sizeof(*s));

	*s = (struct search){
		.job = {.work = search_work, .done = search_done},
		.options = *options,
		.reply = reply,
		.run.id = run,
		.checkpoint.run = run,
		.found = found,
		.arg = arg,
	};
	record_show(options->store, options->state_dir, run, -1, 1, on_show, s);
}

static void on_found(void *arg, const struct last_checkpoint *c)
{
	if (c)
		reply_result(arg,
			json_pack("{sI sI ss}", "id", (json_int_t)c->run, "step",
				(json_int_t)c->step, "dir", c->dir));
}

void last_checkpoint_request(
	const struct last_checkpoint_options *options, struct reply *reply, json_t *params)
{
	last_checkpoint_find(options, reply, request_integer(params, "id", 0), on_found, reply);
}

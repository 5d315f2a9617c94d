#include "daemon/runs/submit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engines/checker.h"
#include "daemon/nodes/world.h"
#include "daemon/config/clock.h"
#include "daemon/control/reply.h"
#include "daemon/runs/lifecycle.h"
#include "daemon/runs/checkpoints.h"
#include "daemon/store/record.h"
#include "daemon/control/role.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "proto/text.h"
#include "proto/host/data_roots.h"
#include "proto/host/memory.h"
#include "proto/stats/design.h"
#include "proto/protocol.h"
#include "proto/spec/spec.h"

struct submitter {
	struct submit_options options;
	struct checker *checker; /* NULL: refuses all checks */
	bool stopping;
};

/* One request. */
struct submission {
	struct submitter *submitter;
	struct reply *reply;
	uid_t uid;
	bool dry_run;
	int64_t priority, rerun_of;
	char *text; /* as the client sent it */
	struct spec *spec;
	char *canonical;
	json_t *checks; /* array: {arm, spec_sha256, check} */
	json_t *errors; /* array: {line, key, message} */
	size_t arm;     /* being checked */
	json_t *resume; /* folders of checkpoints for its resume_from; NULL: none */
	char *probe;    /* file in the folder of its checkpoints, for other nodes; NULL: none */
	struct run *run;
};

static void submission_free(struct submission *s)
{
	free(s->text);
	spec_free(s->spec);
	free(s->canonical);
	json_decref(s->checks);
	json_decref(s->errors);
	json_decref(s->resume);
	free(s->run);
	free(s);
}

static bool has_errors(const struct submission *s)
{
	return json_array_size(s->errors) > 0;
}

/* Replies with an error and ends the submission. Takes data. */
static void refuse(struct submission *s, int code, json_t *data, const char *message)
{
	struct reply *reply = s->reply;

	/* nothing was passed to the store yet */
	if ((code == PROTOCOL_INTERNAL || code == PROTOCOL_BUSY) && data == NULL)
		data = json_pack("{sb}", "queued", false);
	submission_free(s);
	reply_error(reply, code, data, "%s", message);
}

static void refuse_spec(struct submission *s)
{
	json_t *first = json_array_get(s->errors, 0);
	const char *key = json_string_value(json_object_get(first, "key"));
	const char *text = json_string_value(json_object_get(first, "message"));
	char message[900];
	size_t more = json_array_size(s->errors) - 1;

	snprintf(message, sizeof(message), "spec refused: %s%s%s", key ? key : "",
		key && key[0] ? ": " : "", text ? text : "");
	if (more > 0)
		snprintf(message + strlen(message), sizeof(message) - strlen(message),
			" (and %zu more)", more);
	refuse(s, PROTOCOL_SPEC_REFUSED, json_pack("{sO}", "errors", s->errors), message);
}

/* at: of the spec's text, or {0}. */
static void add_error(
	struct submission *s, struct spec_place at, const char *key, const char *message)
{
	json_array_append_new(s->errors,
		json_pack("{si si ss ss}", "line", at.line, "column", at.column, "key", key,
			"message", message));
}

/* About the arm that is being checked. */
static void add_arm_error(struct submission *s, const char *key, const char *message)
{
	char of_arm[400];

	snprintf(of_arm, sizeof(of_arm), "arms.%s%s%s", s->spec->arms[s->arm].name,
		key[0] ? "." : "", key);
	text_clean(of_arm);
	add_error(s, (struct spec_place){0}, s->spec->has_arms ? of_arm : key, message);
}

/* ---- data roots ---- */

/* If data roots are set, only a path below them is allowed. */
static void check_path(struct submission *s, const char *key, const char *path)
{
	struct data_roots roots = settings_data_roots(s->submitter->options.settings);
	char message[SPEC_PATH_MAX + PATH_MAX + 256];
	int fd;

	if (path[0] == '\0' || roots.n == 0)
		return;
	fd = data_roots_open(&roots, path, message, sizeof(message));
	if (fd >= 0)
		close(fd);
	else
		add_error(s, (struct spec_place){0}, key, message);
}

/* Where checkpoints may be written: below checkpoint_roots, else with gpt2d's own permissions. */
static void check_checkpoint_dir(struct submission *s, const char *path)
{
	const struct settings *settings = s->submitter->options.settings;
	const struct data_roots roots = settings_checkpoint_roots(settings);
	char message[SPEC_PATH_MAX + PATH_MAX + 256];
	int fd;

	if (path[0] == '\0')
		return;
	if (roots.n > 0) {
		fd = data_roots_open(&roots, path, message, sizeof(message));
		if (fd >= 0) {
			close(fd);
			return;
		}
		snprintf(message, sizeof(message),
			"%s is not below checkpoint_roots of gpt2d.conf (%s%s), or does not exist",
			path, roots.path[0], roots.n > 1 ? ", ..." : "");
	} else if (s->uid == 0 || s->uid == geteuid()) {
		return;
	} else {
		snprintf(message, sizeof(message),
			"gpt2d writes checkpoints for others, as uid %u, below its "
			"checkpoint_roots only: none is set in gpt2d.conf. Leave the key out: "
			"checkpoints are then in the run's folder",
			(unsigned)s->uid);
	}
	add_error(s, (struct spec_place){0}, "checkpoint.dir", message);
}

/* Whether this user's runs would need to read files but may not; then adds an error. */
static bool is_barred(struct submission *s)
{
	const char *key, *path;
	char message[300];

	if (role_may_read(s->submitter->options.settings, s->uid))
		return false;
	role_say_unreadable(s->uid, message, sizeof(message));
	for (size_t i = 0; i < s->spec->n_arms; i++) {
		key = spec_file_key(&s->spec->arms[i].config, &path);
		if (key != NULL) {
			add_error(s, (struct spec_place){0}, key, message);
			return true;
		}
	}
	return false;
}

/* In the store's thread, because a file system may be slow. */
static int check_paths(void *arg)
{
	struct submission *s = arg;

	const struct spec_config *config, *first = &s->spec->arms[0].config;

	for (size_t i = 0; i < s->spec->n_arms; i++) {
		config = &s->spec->arms[i].config;
		if (i == 0 || strcmp(config->data_train, first->data_train) != 0)
			check_path(s, "data.train", config->data_train);
		if (i == 0 || strcmp(config->data_val, first->data_val) != 0)
			check_path(s, "data.val", config->data_val);
		if (i == 0 || strcmp(config->init_safetensors, first->init_safetensors) != 0)
			check_path(s, "init_from.safetensors", config->init_safetensors);
		if (i == 0 || strcmp(config->checkpoint_dir, first->checkpoint_dir) != 0)
			check_checkpoint_dir(s, config->checkpoint_dir);
		if (!spec_run_id(config->resume_from) &&
			(i == 0 || strcmp(config->resume_from, first->resume_from) != 0))
			check_path(s, "resume_from", config->resume_from);
	}
	return 0;
}

static void check_next(struct submission *s);

static void on_paths(void *arg, int rc)
{
	struct submission *s = arg;

	if (has_errors(s))
		refuse_spec(s);
	else
		check_next(s);
}

/* ---- replies ---- */

static json_t *order_json(const struct spec *spec)
{
	size_t n = spec_segments(spec);
	struct design_segment *order = memory_zeroed(n, sizeof(*order));
	json_t *all = json_array();

	spec_order(spec, order);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(all,
			json_pack("{sI sI ss}", "block", (json_int_t)order[i].block + 1, "position",
				(json_int_t)order[i].position + 1, "arm",
				spec->arms[order[i].arm].name));
	free(order);
	return all;
}

static void answer_dry(struct submission *s)
{
	struct reply *reply = s->reply;
	char sha256[SPEC_HASH_HEX + 1];
	json_t *result;

	spec_hash(s->canonical, sha256);
	result = json_pack("{so ss sI so sO}", "spec", json_loads(s->canonical, 0, NULL),
		"spec_sha256", sha256, "segments", (json_int_t)spec_segments(s->spec), "order",
		order_json(s->spec), "arms", s->checks);
	submission_free(s);
	reply_result(reply, result);
}

static void refuse_unstored(struct submission *s, int rc)
{
	char why[FAILURE_TEXT_BYTES], message[FAILURE_TEXT_BYTES + 160];

	store_failure_text(s->submitter->options.store, rc, why);
	snprintf(message, sizeof(message), "the run is not queued: gpt2d could not store it: %s",
		why);
	refuse(s, PROTOCOL_STORE, json_pack("{sb}", "queued", 0), message);
}

static void on_stored(void *arg, int rc)
{
	struct submission *s = arg;
	const struct submit_options *o = &s->submitter->options;
	struct run *run = s->run;
	struct reply *reply = s->reply;
	char message[128];

	if (rc == -ENOENT) {
		snprintf(message, sizeof(message),
			"rerun_of: run %lld: no such run; it may have been removed",
			(long long)s->rerun_of);
		refuse(s, PROTOCOL_NO_SUCH_RUN, NULL, message);
		return;
	}
	if (rc < 0) {
		refuse_unstored(s, rc);
		return;
	}
	s->run = NULL;
	submission_free(s);
	lifecycle_begin(o->lifecycle, run);
	o->queued(o->arg, reply, run);
}

static void store_run(struct submission *s)
{
	struct run *run = memory_zeroed(1, sizeof(*run));
	char *checks = json_dumps(s->checks, JSON_COMPACT);

	s->run = run;
	*run = (struct run){
		.uid = s->uid,
		.state = RUN_QUEUED,
		.gpus = s->spec->arms[0].config.gpus,
		.segments = (int64_t)spec_segments(s->spec),
		.attempt = 1,
		.restart = s->spec->restart,
		.timeout_s = s->spec->timeout_s,
		.priority = s->priority,
		.rerun_of = s->rerun_of,
		.submitted_ns = clock_utc_ns(),
	};
	for (size_t i = 1; i < s->spec->n_arms; i++)
		if (s->spec->arms[i].config.gpus > run->gpus)
			run->gpus = s->spec->arms[i].config.gpus;
	snprintf(run->name, sizeof(run->name), "%s", s->spec->name);
	spec_hash(s->canonical, run->spec_sha256);
	record_submit(
		s->submitter->options.store, run, s->spec, s->canonical, checks, on_stored, s);
	free(checks);
}

/* ---- checks, one arm after another ---- */

static void add_check(struct submission *s, json_t *check)
{
	char *text = s->spec->has_arms ? spec_canonical_arm(s->spec, s->arm) : NULL;
	char sha256[SPEC_HASH_HEX + 1];

	spec_hash(text ? text : s->canonical, sha256);
	free(text);
	json_array_append_new(s->checks,
		json_pack("{ss ss sO?}", "arm", s->spec->arms[s->arm].name, "spec_sha256", sha256,
			"check", check));
}

static void next_arm(struct submission *s)
{
	json_decref(s->resume);
	s->resume = NULL;
	s->arm++;
	check_next(s);
}

/* In the store's thread, because a file system may be slow. */
static int remove_probe(void *arg)
{
	unlink(arg);
	return 0;
}

static void on_removed(void *arg, int rc)
{
	free(arg);
}

static void on_members(void *arg, json_t *errors)
{
	struct submission *s = arg;
	json_t *error;
	size_t i;

	if (s->probe != NULL)
		record_files(s->submitter->options.store, remove_probe, on_removed, s->probe);
	s->probe = NULL;
	if (!reply_wanted(s->reply)) {
		reply_drop(s->reply);
		submission_free(s);
		return;
	}
	json_array_foreach(errors, i, error)
		add_arm_error(s, json_string_value(json_object_get(error, "key")),
			json_string_value(json_object_get(error, "message")));
	next_arm(s);
}

static struct checker_question question_of(const struct submission *s);

static void ask_members(struct submission *s)
{
	struct checker_question question = question_of(s);

	question.runs = s->submitter->options.runs_dir;
	question.probe = s->probe;
	if (!world_check(s->submitter->options.world, &question, s->spec->arms[s->arm].config.gpus,
		    on_members, s))
		on_members(s, NULL);
}

/* Also there: makes an empty file in the folder of the checkpoints, for the members to find. */
static int make_probe(void *arg)
{
	struct submission *s = arg;
	const char *dir = s->spec->arms[s->arm].config.checkpoint_dir;
	char *path = memory_printed(
		"%s/.gpt2d-probe-XXXXXX", dir[0] ? dir : s->submitter->options.runs_dir);
	int fd = mkostemp(path, O_CLOEXEC), rc = fd < 0 ? -errno : 0;

	if (rc < 0) {
		free(path);
		return rc;
	}
	close(fd);
	s->probe = path;
	return 0;
}

static void on_probe(void *arg, int rc)
{
	struct submission *s = arg;
	const char *dir = s->spec->arms[s->arm].config.checkpoint_dir;
	char message[SPEC_PATH_MAX + 256];

	if (rc < 0) {
		snprintf(message, sizeof(message), "%s: gpt2d cannot write there: %s",
			dir[0] ? dir : s->submitter->options.runs_dir, store_error_text(rc));
		add_arm_error(s, dir[0] ? "checkpoint.dir" : "checkpoint", message);
	}
	ask_members(s);
}

static void on_answer(void *arg, const char *failure, json_t *reply)
{
	struct submission *s = arg;
	const struct spec_config *config = &s->spec->arms[s->arm].config;
	json_t *errors, *error;
	const char *key, *message;
	size_t i;

	if (!reply_wanted(s->reply)) { /* no client waits: nothing is queued */
		reply_drop(s->reply);
		submission_free(s);
		return;
	}
	if (failure != NULL && has_errors(s)) {
		refuse_spec(s); /* the known errors are enough */
		return;
	}
	if (failure != NULL && s->submitter->stopping) { /* the checker ends with gpt2d */
		refuse(s, PROTOCOL_BUSY, NULL, checker_stopping);
		return;
	}
	if (failure != NULL) {
		refuse(s, PROTOCOL_INTERNAL, NULL, failure);
		return;
	}
	errors = json_object_get(reply, "errors");
	json_array_foreach(errors, i, error) {
		key = json_string_value(json_object_get(error, "key"));
		message = json_string_value(json_object_get(error, "message"));
		if (message == NULL)
			message = json_string_value(error);
		add_arm_error(s, key ? key : "", message ? message : "refused without a reason");
	}
	if (!json_is_true(json_object_get(reply, "ok")) && !has_errors(s))
		add_error(s, (struct spec_place){0}, "", "refused by the checker without a reason");
	add_check(s, json_object_get(reply, "check"));
	if (has_errors(s) || !world_spans(s->submitter->options.world, config->gpus))
		next_arm(s);
	else if (spec_checkpoints(config))
		record_files(s->submitter->options.store, make_probe, on_probe, s);
	else
		ask_members(s);
}

static bool is_wanted(void *arg)
{
	const struct submission *s = arg;

	return reply_wanted(s->reply);
}

/* About the arm that is being checked. */
static struct checker_question question_of(const struct submission *s)
{
	const struct spec_arm *arm = &s->spec->arms[s->arm];
	const char *file;

	spec_file_key(&arm->config, &file);
	return (struct checker_question){
		.world = settings_world(s->submitter->options.settings),
		.spec = s->text,
		.arm = arm->name,
		.file = file,
		.resume = s->resume,
	};
}

static void ask_checker(struct submission *s)
{
	struct checker_question question = question_of(s);

	question.answer = on_answer;
	question.wanted = is_wanted;
	question.arg = s;
	checker_ask(s->submitter->checker, &question);
}

/* The run that resume_from names. */
static void on_resume(void *arg, int rc, json_t *folders)
{
	struct submission *s = arg;
	char message[128];

	if (rc == -ENOENT) {
		snprintf(message, sizeof(message),
			"run %.20s: no such run; it may have been removed",
			s->spec->arms[s->arm].config.resume_from);
		add_arm_error(s, "resume_from", message);
		next_arm(s);
	} else if (rc < 0) {
		refuse(s, PROTOCOL_STORE, json_pack("{sb}", "queued", 0), store_error_text(rc));
	} else if (s->submitter->checker == NULL) {
		json_decref(folders);
		refuse(s, PROTOCOL_BUSY, NULL, checker_stopping);
	} else {
		s->resume = folders;
		ask_checker(s);
	}
}

static void check_next(struct submission *s)
{
	int64_t id;

	if (s->arm == s->spec->n_arms && has_errors(s)) {
		refuse_spec(s);
		return;
	}
	if (s->arm == s->spec->n_arms && s->dry_run) {
		answer_dry(s);
		return;
	}
	if (s->submitter->checker == NULL || (s->submitter->stopping && !s->dry_run)) {
		refuse(s, PROTOCOL_BUSY, NULL, checker_stopping);
		return;
	}
	if (s->arm == s->spec->n_arms) {
		store_run(s);
		return;
	}
	id = spec_run_id(s->spec->arms[s->arm].config.resume_from);
	if (id > 0)
		checkpoints_find(s->submitter->options.store, s->submitter->options.state_dir, id,
			on_resume, s);
	else
		ask_checker(s);
}

/* ---- the beginning ---- */

static int parse_spec(struct submission *s)
{
	struct spec_options options = {
		.world = (int)settings_world(s->submitter->options.settings)};
	struct spec_errors errors;
	int rc = spec_parse(s->text, strlen(s->text), &options, &s->spec, &errors);

	if (rc == -EINVAL)
		for (size_t i = 0; i < errors.n; i++)
			add_error(s, errors.error[i].at, errors.error[i].key,
				errors.error[i].message);
	return rc;
}

static bool writes_outside(const struct submission *s)
{
	for (size_t i = 0; i < s->spec->n_arms; i++)
		if (s->spec->arms[i].config.checkpoint_dir[0] != '\0')
			return true;
	return false;
}

static void begin(struct submission *s)
{
	int rc = parse_spec(s);

	if (has_errors(s) || (rc == 0 && is_barred(s))) {
		refuse_spec(s);
	} else if (rc < 0) {
		refuse(s, PROTOCOL_INTERNAL, NULL, strerror(-rc));
	} else {
		s->canonical = spec_canonical(s->spec);
		if (s->submitter->options.settings->data_roots.n == 0 && !writes_outside(s))
			check_next(s);
		else
			record_files(s->submitter->options.store, check_paths, on_paths, s);
	}
}

/* Whether the client may request this. If not, it has its error. */
static bool is_allowed(struct reply *reply, int64_t priority, int64_t rerun_of)
{
	char why[256];

	if (priority < -PROTOCOL_PRIORITY_MAX || priority > PROTOCOL_PRIORITY_MAX) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"priority: %lld, %d to %d is allowed", (long long)priority,
			-PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX);
		return false;
	}
	if (rerun_of < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"rerun_of: %lld, a run's ID is expected", (long long)rerun_of);
		return false;
	}
	if (!role_may_rank(reply_peer(reply), priority, 0)) {
		role_say_unranked(priority, why, sizeof(why));
		reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL, "%s", why);
		return false;
	}
	return true;
}

void submit_request(struct submitter *submitter, struct reply *reply, json_t *params, bool dry_run)
{
	json_int_t priority = json_integer_value(json_object_get(params, "priority"));
	json_int_t rerun_of = json_integer_value(json_object_get(params, "rerun_of"));
	struct submission *s;

	if (submitter->stopping && !dry_run) {
		reply_error(reply, PROTOCOL_BUSY, json_pack("{sb}", "queued", false), "%s",
			checker_stopping);
		return;
	}
	if (!is_allowed(reply, priority, rerun_of))
		return;
	s = memory_zeroed(1, sizeof(*s));
	*s = (struct submission){
		.submitter = submitter,
		.reply = reply,
		.text = memory_text(json_string_value(json_object_get(params, "spec"))),
		.uid = reply_peer(reply)->uid,
		.dry_run = dry_run,
		.priority = priority,
		.rerun_of = rerun_of,
		.checks = json_array(),
		.errors = json_array(),
	};
	begin(s);
}

struct submitter *submit_create(const struct submit_options *options)
{
	struct submitter *submitter = memory_zeroed(1, sizeof(*submitter));

	submitter->options = *options;
	submitter->checker = options->checker;
	return submitter;
}

void submit_destroy(struct submitter *submitter)
{
	free(submitter);
}

void submit_stop(struct submitter *submitter)
{
	submitter->stopping = true;
}

void submit_stop_checks(struct submitter *submitter)
{
	submitter->checker = NULL;
}

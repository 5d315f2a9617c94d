#include "daemon/engines/engine_probe.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engines/engine_link.h"
#include "proto/host/starved.h"
#include "proto/protocol.h"

enum {
	END_TRIES = 100, /* for the end of an engine, END_PAUSE_NS apart */
	END_PAUSE_NS = 20000000,
};

struct question {
	struct event_base *base;
	char device[256], failure[512];
	bool answered, closed;
};

static const char small_run[] =
	"{\"name\": \"check\", \"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"},"
	" \"seq_len\": 64, \"train_micro_batch_size_per_gpu\": 1,"
	" \"gradient_accumulation_steps\": 1,"
	" \"work\": {\"optimizer_steps\": 1, \"warmup_steps\": 0}}";

static void on_message(struct engine_link *link, const char *method, json_t *params, void *arg)
{
	const json_t *device = json_object_get(params, "device"), *errors;
	const char *name = json_string_value(json_object_get(device, "name"));
	const char *library = json_string_value(json_object_get(device, "library")), *message;
	struct question *q = arg;

	if (strcmp(method, ENGINE_HELLO) == 0) {
		snprintf(q->device, sizeof(q->device), "%s%s%s", name ? name : "a device",
			library ? ", " : "", library ? library : "");
		engine_link_check_build(link, params, q->failure, sizeof(q->failure));
		if (q->failure[0] != '\0')
			event_base_loopbreak(q->base);
		else
			engine_link_send(link, CHECK_REQUEST,
				json_pack("{si si ss ss}", "token", 1, "world", 1, "spec",
					small_run, "arm", "run"));
	} else if (strcmp(method, CHECK_REPLY) == 0) {
		q->answered = json_is_true(json_object_get(params, "ok"));
		errors = json_object_get(params, "errors");
		message = json_string_value(json_object_get(json_array_get(errors, 0), "message"));
		snprintf(q->failure, sizeof(q->failure), "refuses a small model: %.400s",
			message ? message : "without a reason");
		event_base_loopbreak(q->base);
	}
}

static void on_broken(struct engine_link *link, const char *why, void *arg)
{
	struct question *q = arg;

	snprintf(q->failure, sizeof(q->failure), "%s", why ? why : "closed its link");
	q->closed = why == NULL;
	event_base_loopbreak(q->base);
}

static void ask(struct question *q, const char *program, int64_t timeout_s)
{
	static const struct timespec pause = {0, END_PAUSE_NS};
	const struct timeval wait = {(time_t)timeout_s, 0};
	char role[] = "--role", check[] = "check", path[PATH_MAX];
	char *argv[] = {path, role, check, NULL};
	struct engine_link_options o = {
		.base = q->base,
		.program = program,
		.argv = argv,
		.what = "check",
		.message = on_message,
		.broken = on_broken,
		.arg = q,
	};
	struct engine_link *link;
	int rc;

	snprintf(path, sizeof(path), "%s", program);
	rc = engine_link_create(&o, &link);
	if (rc < 0) {
		snprintf(q->failure, sizeof(q->failure), "cannot be started: %s", starved_text(rc));
		return;
	}
	event_base_loopexit(q->base, &wait);
	event_base_dispatch(q->base);
	if (!q->answered && q->failure[0] == '\0')
		snprintf(q->failure, sizeof(q->failure),
			"no answer within %" PRId64 " s: it hangs, or check_timeout is too short",
			timeout_s);
	/* the end of the process says more than the end of its link */
	for (int i = 0; q->closed && i < END_TRIES; i++) {
		if (engine_link_reap(link)) {
			snprintf(q->failure, sizeof(q->failure), "%s", engine_link_end(link));
			break;
		}
		nanosleep(&pause, NULL);
	}
	engine_link_destroy(link);
}

int engine_probe(const char *program, int64_t timeout_s, char *text, size_t text_bytes)
{
	struct question q = {.base = event_base_new()};

	if (access("/dev/null", R_OK | W_OK) < 0)
		snprintf(q.failure, sizeof(q.failure), "/dev/null: %s", strerror(errno));
	else
		ask(&q, program, timeout_s);
	event_base_free(q.base);
	snprintf(text, text_bytes, "%s", q.answered ? q.device : q.failure);
	return q.answered ? 0 : -EPROTO;
}

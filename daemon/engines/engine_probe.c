#include "daemon/engines/engine_probe.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engines/engine_link.h"
#include "proto/host/memory.h"
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
	const char *argv[] = {program, "--role", "check", NULL};
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

/* ---- two ranks that connect ---- */

enum { RANKS = 2 };

struct meeting {
	struct event_base *base;
	const char *interface; /* NULL: both are on one node */
	struct meeting_rank {
		struct meeting *meeting;
		struct engine_link *link;
		char *address;
		bool ready;
	} rank[RANKS];
	char failure[512];
};

static void on_rank_hello(struct meeting_rank *r, const json_t *params)
{
	const char *address = json_string_value(json_object_get(params, "address"));
	struct meeting *m = r->meeting;
	json_t *connect;

	free(r->address);
	r->address = memory_text(address ? address : "");
	for (int i = 0; i < RANKS; i++)
		if (m->rank[i].address == NULL)
			return;
	for (int i = 0; i < RANKS; i++) {
		connect = json_pack("{s[ss]}", "addresses", m->rank[0].address, m->rank[1].address);
		if (m->interface != NULL)
			json_object_set_new(connect, "nodes", json_pack("[ii]", 0, 1));
		engine_link_send(m->rank[i].link, ENGINE_CONNECT, connect);
	}
}

static void on_rank_message(struct engine_link *link, const char *method, json_t *params, void *arg)
{
	struct meeting_rank *r = arg;
	struct meeting *m = r->meeting;
	const char *message = json_string_value(json_object_get(params, "message"));
	const char *level = json_string_value(json_object_get(params, "level"));

	if (strcmp(method, ENGINE_HELLO) == 0) {
		on_rank_hello(r, params);
	} else if (strcmp(method, ENGINE_READY) == 0) {
		r->ready = true;
		if (m->rank[0].ready && m->rank[1].ready)
			event_base_loopbreak(m->base);
	} else if (strcmp(method, ENGINE_LOG) == 0 && message != NULL && level != NULL &&
		strcmp(level, "error") == 0 && m->failure[0] == '\0') {
		snprintf(m->failure, sizeof(m->failure), "%s", message);
		event_base_loopbreak(m->base);
	}
}

static void on_rank_broken(struct engine_link *link, const char *why, void *arg)
{
	struct meeting *m = ((struct meeting_rank *)arg)->meeting;

	if (m->failure[0] == '\0')
		snprintf(m->failure, sizeof(m->failure), "a rank %s", why ? why : "ended");
	event_base_loopbreak(m->base);
}

static int start_rank(struct meeting *m, int i, const char *program)
{
	char rank[16];
	const char *argv[] = {program, "--role", "connect", "--rank", rank, "--ranks", "2",
		m->interface ? "--interface" : NULL, m->interface, NULL};
	struct engine_link_options o = {
		.base = m->base,
		.program = program,
		.argv = argv,
		.what = "check",
		.message = on_rank_message,
		.broken = on_rank_broken,
		.arg = &m->rank[i],
	};

	snprintf(rank, sizeof(rank), "%d", i);
	m->rank[i].meeting = m;
	return engine_link_create(&o, &m->rank[i].link);
}

/* why stays empty if they connect. */
static void meet(
	const char *program, const char *interface, int64_t timeout_s, char *why, size_t why_bytes)
{
	const struct timeval wait = {(time_t)timeout_s, 0};
	struct meeting m = {.base = event_base_new(), .interface = interface};
	int rc = 0;

	for (int i = 0; i < RANKS && rc == 0; i++)
		rc = start_rank(&m, i, program);
	if (rc < 0) {
		snprintf(m.failure, sizeof(m.failure), "cannot be started: %s", starved_text(rc));
	} else {
		event_base_loopexit(m.base, &wait);
		event_base_dispatch(m.base);
	}
	if (m.failure[0] == '\0' && !(m.rank[0].ready && m.rank[1].ready))
		snprintf(m.failure, sizeof(m.failure), "not connected within %" PRId64 " s",
			timeout_s);
	for (int i = 0; i < RANKS; i++) {
		engine_link_destroy(m.rank[i].link);
		free(m.rank[i].address);
	}
	event_base_free(m.base);
	snprintf(why, why_bytes, "%s", m.failure);
}

int engine_probe(const char *program, int64_t ranks, const char *interface, int64_t timeout_s,
	char *text, size_t text_bytes)
{
	const bool meets = ranks > 1 || interface != NULL;
	struct question q = {.base = event_base_new()};
	char why[512] = "";

	ask(&q, program, timeout_s);
	event_base_free(q.base);
	if (q.answered && meets)
		meet(program, interface, timeout_s, why, sizeof(why));
	if (!q.answered)
		snprintf(text, text_bytes, "the engine does not check a spec: %s", q.failure);
	else if (why[0])
		snprintf(text, text_bytes, "two ranks cannot connect: %s", why);
	else
		snprintf(text, text_bytes, "it answers: %s%s%s%s", q.device,
			meets ? "; two ranks connect" : "", interface ? " over " : "",
			interface ? interface : "");
	return q.answered && !why[0] ? 0 : -EPROTO;
}

/* ---- shared libraries ---- */

/*
 * The names of NVIDIA's packages have the major version of CUDA, which is that of the library's
 * name.
 */
static const struct {
	const char *library, *package;
	bool versioned;
} packages[] = {
	{"libcudart.so.", "cuda-cudart-", true},
	{"libcublasLt.so.", "libcublas-", true},
	{"libnccl.so.", "libnccl2", false},
	{"libstdc++.so.", "libstdc++6", false},
	{"libopenblas.so.", "libopenblas0", false},
};

static void add_library(const char *library, char *text, size_t text_bytes)
{
	const size_t n = strlen(text);
	char package[64] = "";

	for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++) {
		const size_t length = strlen(packages[i].library);

		if (strncmp(library, packages[i].library, length) != 0)
			continue;
		if (packages[i].versioned)
			snprintf(package, sizeof(package), " (package %s%.8s-0 or later)",
				packages[i].package, library + length);
		else
			snprintf(package, sizeof(package), " (package %s)", packages[i].package);
	}
	snprintf(text + n, text_bytes - n, "%s%.100s%s", n > 0 ? ", " : "", library, package);
}

/* Starts the program under the dynamic linker's trace, as ldd does: it lists the libraries. */
static pid_t trace(const char *program, int out)
{
	char path[PATH_MAX];
	char *argv[] = {path, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid = -1;

	snprintf(path, sizeof(path), "%s", program);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
	if (posix_spawn(&pid, program, &actions, NULL, argv, environ) != 0)
		pid = -1;
	unsetenv("LD_TRACE_LOADED_OBJECTS");
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

int engine_probe_libraries(const char *program, char *text, size_t text_bytes)
{
	char line[PATH_MAX + 64], name[128];
	int fds[2], missing = 0;
	FILE *lines = NULL;
	pid_t pid;

	text[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return 0;
	pid = trace(program, fds[1]);
	close(fds[1]);
	lines = pid > 0 ? fdopen(fds[0], "r") : NULL;
	while (lines != NULL && fgets(line, sizeof(line), lines) != NULL) {
		if (sscanf(line, " %127s => not found", name) != 1 ||
			strstr(line, "=> not found") == NULL)
			continue;
		add_library(name, text, text_bytes);
		missing++;
	}
	if (lines != NULL)
		fclose(lines);
	else
		close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return missing;
}

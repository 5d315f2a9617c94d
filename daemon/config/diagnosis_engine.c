/* The engine program: which it is, whether it is of this build, whether it answers as a checker. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/diagnosis.h"
#include "daemon/engines/engine_link.h"
#include "proto/protocol.h"
#include "proto/host/starved.h"
#include "proto/version.h"

enum { END_TRIES = 100 };
static const struct timespec moment = {0, 20000000};

extern char **environ;

static void check_program(struct diagnosis *d)
{
	struct engine_program *p = &d->program;
	char error[PATH_MAX + 512];

	if (engine_program_find(d->settings, p, error, sizeof(error)) < 0) {
		p->path[0] = '\0';
		diagnosis_add(d, "device", VERDICT_FAIL, "see device and engine in gpt2d.conf(5)",
			"%s", error);
		return;
	}
	diagnosis_add(d, "device", VERDICT_OK, NULL, "%s%s%s%s, %s",
		engine_program_device_name(p->device), p->why[0] ? " (auto: " : "", p->why,
		p->why[0] ? ")" : "", p->path);
}

/* ---- --version ---- */

/* check_timeout is for all that is asked of the engine. */
static int64_t left_ms(int64_t until_ns)
{
	int64_t left = (until_ns - clock_mono_ns()) / CLOCK_MS_NS;

	return left > 0 ? left : 0;
}

/* In a process group of its own: 0 with what it prints in *fd, or a negative errno. */
static int spawn_version(char *program, pid_t *pid, int *fd)
{
	char option[] = "--version", *argv[] = {program, option, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t group;
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&group);
	posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
	rc = posix_spawn(pid, program, &actions, &group, argv, environ);
	posix_spawnattr_destroy(&group);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (rc == 0)
		*fd = fds[0];
	else
		close(fds[0]);
	return -rc;
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0;
}

/*
 * What it prints, as one line: 0, -ETIMEDOUT, -EPROTO when it does not end well, or why it cannot
 * be started. What it has started goes with it.
 */
static int ask_version(char *program, int64_t until_ns, char *out, size_t out_bytes)
{
	struct pollfd p = {.events = POLLIN};
	int status = -1, rc;
	size_t used = 0;
	ssize_t n = 1;
	bool late;
	pid_t pid;

	rc = spawn_version(program, &pid, &p.fd);
	if (rc < 0)
		return rc;
	while (n > 0 && used + 1 < out_bytes && poll(&p, 1, (int)left_ms(until_ns)) > 0) {
		n = read(p.fd, out + used, out_bytes - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	}
	while (!has_ended(pid) && left_ms(until_ns) > 0) /* its output is closed */
		nanosleep(&moment, NULL);
	late = !has_ended(pid);
	kill(-pid, SIGKILL);
	close(p.fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	out[used] = '\0';
	while (used > 0 && out[used - 1] == '\n')
		out[--used] = '\0';
	for (char *c = out; *c != '\0'; c++)
		if (*c == '\n')
			*c = ' ';
	if (late)
		return -ETIMEDOUT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && used > 0 ? 0 : -EPROTO;
}

/* Whether it is worth asking it more. */
static bool tell_no_version(struct diagnosis *d, int rc)
{
	if (rc == -ETIMEDOUT)
		diagnosis_add(d, "engine", VERDICT_FAIL,
			"run it by hand with --version, or set a longer check_timeout",
			"%s --version hangs: it has not ended within %lld s", d->program.path,
			(long long)d->settings->check_timeout_s);
	else if (rc == -EPROTO)
		diagnosis_add(d, "engine", VERDICT_FAIL,
			"run it by hand with --version: a library "
			"that is missing is told there",
			"%s --version fails", d->program.path);
	else
		diagnosis_add(d, "engine", VERDICT_FAIL, "see engine in gpt2d.conf(5)",
			"%s cannot be started: %s", d->program.path, starved_text(rc));
	return rc == -EPROTO;
}

/* What engines read, and write where nobody looks. */
static bool has_null(struct diagnosis *d)
{
	if (access("/dev/null", R_OK | W_OK) == 0)
		return true;
	diagnosis_add(d, "engine", VERDICT_FAIL, "mknod -m 666 /dev/null c 1 3",
		"no engine can be started: /dev/null: %s", strerror(errno));
	return false;
}

/* Whether it is worth asking it more. */
static bool check_version(struct diagnosis *d, int64_t until_ns)
{
	char says[256], build[80];
	int rc = ask_version(d->program.path, until_ns, says, sizeof(says));

	if (rc < 0)
		return tell_no_version(d, rc);
	snprintf(build, sizeof(build), "(%s)", version_build);
	if (strstr(says, build) == NULL)
		diagnosis_add(d, "engine", VERDICT_FAIL,
			ENGINE_LINK_CURE, "%s: gpt2d is build %s", says, version_build);
	else if (strstr(says, "UCX ") == NULL)
		diagnosis_add(d, "engine", VERDICT_WARN,
			"install libucx0: without it there is one rank only", "%s, no UCX", says);
	else
		diagnosis_add(d, "engine", VERDICT_OK, NULL, "%s", says);
	return true;
}

/* ---- role check ---- */

struct asking {
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
	struct asking *a = arg;
	const json_t *device = json_object_get(params, "device");
	const char *name = json_string_value(json_object_get(device, "name"));
	const char *library = json_string_value(json_object_get(device, "library")), *message;
	const json_t *errors;

	if (strcmp(method, ENGINE_HELLO) == 0) {
		snprintf(a->device, sizeof(a->device), "%s%s%s", name ? name : "a device",
			library ? ", " : "", library ? library : "");
		engine_link_send(link, CHECK_REQUEST,
			json_pack("{si si ss ss}", "token", 1, "world", 1, "spec", small_run, "arm",
				"run"));
	} else if (strcmp(method, CHECK_REPLY) == 0) {
		a->answered = json_is_true(json_object_get(params, "ok"));
		errors = json_object_get(params, "errors");
		message = json_string_value(json_object_get(json_array_get(errors, 0), "message"));
		snprintf(a->failure, sizeof(a->failure), "it refuses a small model: %.400s",
			message ? message : "without a reason");
		event_base_loopbreak(a->base);
	}
}

static void on_broken(struct engine_link *link, const char *why, void *arg)
{
	struct asking *a = arg;

	snprintf(a->failure, sizeof(a->failure), "it %s", why ? why : "closed its link");
	a->closed = why == NULL;
	event_base_loopbreak(a->base);
}

static void ask(struct diagnosis *d, struct asking *a, int64_t until_ns)
{
	char role[] = "--role", check[] = "check";
	char *argv[] = {d->program.path, role, check, NULL};
	int64_t wait_ms = left_ms(until_ns);
	struct timeval wait = {(time_t)(wait_ms / 1000), (suseconds_t)(wait_ms % 1000 * 1000)};
	struct engine_link_options o = {
		.base = a->base,
		.program = d->program.path,
		.argv = argv,
		.what = "check",
		.message = on_message,
		.broken = on_broken,
		.arg = a,
	};
	struct engine_link *link;
	int rc = engine_link_create(&o, &link);

	if (rc < 0) {
		snprintf(a->failure, sizeof(a->failure), "it cannot be started: %s",
			starved_text(rc));
		return;
	}
	snprintf(a->failure, sizeof(a->failure),
		"no answer within %lld s: it hangs, or check_timeout is too short",
		(long long)d->settings->check_timeout_s);
	event_base_loopexit(a->base, &wait);
	event_base_dispatch(a->base);
	/* how it ended says more, and is known soon */
	for (int i = 0; a->closed && i < END_TRIES; i++) {
		if (engine_link_reap(link)) {
			snprintf(a->failure, sizeof(a->failure), "it %s%s",
				strncmp(engine_link_end(link), "killed", 6) == 0 ? "was " : "",
				engine_link_end(link));
			break;
		}
		nanosleep(&moment, NULL);
	}
	engine_link_destroy(link);
}

static void check_answer(struct diagnosis *d, int64_t until_ns)
{
	struct asking a = {.base = event_base_new()};

	if (a.base == NULL)
		return;
	ask(d, &a, until_ns);
	event_base_free(a.base);
	if (a.answered)
		diagnosis_add(d, "checker", VERDICT_OK, NULL, "the engine answers: %s", a.device);
	else
		diagnosis_add(d, "checker", VERDICT_FAIL,
			"what the engine printed is above, on standard error",
			"the engine does not check a spec: %s", a.failure);
}

void diagnosis_engine(struct diagnosis *d)
{
	int64_t until_ns = clock_mono_ns() + d->settings->check_timeout_s * CLOCK_S_NS;

	check_program(d);
	if (d->program.path[0] != '\0' && has_null(d) && check_version(d, until_ns))
		check_answer(d, until_ns);
}

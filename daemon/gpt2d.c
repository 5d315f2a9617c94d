/* gpt2d: the daemon's main: settings, log, loop. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/config/diagnosis.h"
#include "daemon/engines/engine_program.h"
#include "daemon/config/log.h"
#include "daemon/config/preflight.h"
#include "daemon/config/printed.h"
#include "daemon/config/settings_load.h"
#include "proto/text.h"
#include "daemon/config/ulimits.h"
#include "proto/json_text.h"
#include "proto/host/cgroup.h"
#include "proto/host/procfs.h"
#include "proto/protocol.h"
#include "proto/host/signals.h"
#include "proto/version.h"

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_IN_USE = 3, SIGNALED = 128 };

/* A standard stream that came closed keeps its number: else a lock file or a socket gets it. */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

/* One line on standard error; what came from elsewhere must not drive the terminal. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
	char text[4 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_shorten(text);
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	fprintf(stderr, "gpt2d: %s\n", text);
}

/* The setting, or the share of each rank in the processors. */
static int threads_of(const struct settings *s)
{
	const int64_t share = cgroup_processors("") / s->ranks;
	const int64_t threads = s->threads > 0 ? s->threads : share > 0 ? share : 1;

	return threads < PROTOCOL_THREADS_MAX ? (int)threads : PROTOCOL_THREADS_MAX;
}

static void log_start(const struct daemon *d)
{
	const struct engine_program *p = d->program;
	char why[160];

	log_write(LOG_INFO, "gpt2d %s: socket %s, state %s, settings %s", version_build, d->socket,
		d->state_dir, d->settings->config_file ? d->settings->config_file : "of no file");
	log_write(LOG_INFO, "engine %s, ranks %lld, threads per rank %d", p->path,
		(long long)d->settings->ranks, d->threads);
	if (p->why[0] != '\0')
		log_write(LOG_INFO, "device: auto took %s: %s",
			engine_program_device_name(p->device), p->why);
	if (procfs_check(why, sizeof(why)) < 0)
		log_write(LOG_WARNING, "%s: ranks may not reach each other", why);
}

static void log_warning(const char *text, void *arg)
{
	log_write(LOG_WARNING, "%s", text);
}

static int run(
	struct settings *settings, const struct engine_program *program, int argc, char **argv)
{
	struct daemon daemon = {
		.program = program,
		.threads = threads_of(settings),
		.words = {argc, argv, settings},
	};
	char error[1024];
	int rc;

	rc = daemon_start(&daemon, settings, error, sizeof(error));
	if (rc < 0) {
		log_finish(); /* what led to it is said before */
		say("%s", error);
		daemon_finish(&daemon);
		return rc == -EBUSY ? STATUS_IN_USE : STATUS_FAILED;
	}
	log_start(&daemon);
	preflight_warn(settings, log_warning, NULL);
	event_base_dispatch(daemon.base);
	rc = daemon_finish(&daemon);
	log_write(LOG_INFO, "stopped%s", rc < 0 ? "; not everything could be written" : "");
	return rc < 0 ? STATUS_FAILED : STATUS_OK;
}

static void print_warning(const char *text, void *arg)
{
	say("warning: %s", text);
}

/* Whether the file belongs to somebody else, so that gpt2d may run with other rights than ours. */
static bool is_of_others(const char *file)
{
	struct stat st;

	return stat(file, &st) == 0 && st.st_uid != geteuid();
}

/* Of files and folders that the settings name. */
static bool test_places(const struct settings *s)
{
	char error[2 * PATH_MAX + 512], place[PATH_MAX + 32] = "";
	bool good = true, in_file;
	int line = 0, rc;

	for (enum preflight i = 0; i < PREFLIGHTS; i++) {
		rc = preflight_is_set(i, s) ? preflight_try(i, s, error, sizeof(error)) : 0;
		if (rc == 0)
			continue;
		in_file = settings_in_file(s, preflight_setting(i), &line);
		place[0] = '\0';
		if (in_file)
			snprintf(place, sizeof(place), "%s:%d: ", s->config_file, line);
		if (rc == -EACCES && in_file && is_of_others(s->config_file)) {
			say("warning: %s%s (asked by uid %u, who may not be the user that gpt2d "
			    "runs as)",
				place, error, (unsigned)geteuid());
			continue;
		}
		say("%s%s", place, error);
		good = false;
	}
	preflight_warn(s, print_warning, NULL);
	return good;
}

/* What is in force, in a form that can be read again. */
static void print_settings(struct settings *s, FILE *to)
{
	struct engine_program program;
	char error[PATH_MAX + 512];
	const bool own =
		s->engine == NULL && engine_program_find(s, &program, error, sizeof(error)) == 0;

	settings_resolve(s);
	fprintf(to, "# %s\n", s->config_file != NULL ? s->config_file : "no file was read");
	settings_print(s, to);
	if (own && program.why[0] != '\0')
		fprintf(to, "# device, as auto takes it now: %s: %s\n",
			engine_program_device_name(program.device), program.why);
	if (own)
		fprintf(to, "# engine, as found now: %s\n", program.path);
}

/* -n: what is wrong in the file has been told. */
static int test_settings(struct settings *s, const struct settings_command *command, FILE *to)
{
	bool good = test_places(s);

	if (command->verbose)
		print_settings(s, to);
	else if (good && s->config_file != NULL)
		fprintf(to, "%s: the settings are good\n", s->config_file);
	else if (good)
		fputs("no file; the settings are good\n", to);
	return good ? STATUS_OK : STATUS_USAGE;
}

/*
 * What is for the engine alone, before there is a second thread. OpenBLAS starts a thread for each
 * processor before main, which the CPU engine has no use for; where they are refused memory they
 * ask for ever.
 */
static int set_environment(void)
{
	return setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

/* What is stored is told in ns since 1970; a row from before would be taken for a damaged one. */
static int look_at_clock(void)
{
	const int64_t utc_ns = clock_utc_ns();
	char at[CLOCK_TEXT_BYTES];

	if (utc_ns >= 0)
		return 0;
	clock_text_s(utc_ns, at);
	say("the clock is at %s, a time since 1970 is expected: set it, and start gpt2d again", at);
	return -EINVAL;
}

static int run_with_log(struct settings *settings, int argc, char **argv)
{
	struct engine_program program;
	char error[2 * PATH_MAX + 512];
	int rc;

	if (look_at_clock() < 0)
		return STATUS_FAILED;
	signals_hold(SIGHUP); /* whoever rotates logs does not know that this is the start */
	rc = engine_program_find(settings, &program, error, sizeof(error));
	if (rc < 0) {
		say("%s", error);
		return STATUS_USAGE;
	}
	for (enum preflight i = 0; i < PREFLIGHTS; i++) {
		if (preflight_try(i, settings, error, sizeof(error)) == 0)
			continue;
		say("%s", error);
		return i == PREFLIGHT_STATE || i == PREFLIGHT_SOCKET ? STATUS_FAILED : STATUS_USAGE;
	}
	log_set_level((enum log_level)settings->log_level);
	rc = log_open(settings->log_file, error, sizeof(error));
	if (rc < 0) {
		say("%s", error);
		return rc == -EAGAIN ? STATUS_FAILED : STATUS_USAGE;
	}
	rc = ulimits_check(settings) < 0 ? STATUS_FAILED : run(settings, &program, argc, argv);
	log_finish();
	return rc;
}

/* --check; errors: of the settings, which are the defaults then. */
static int check(const struct settings *s, const char *errors, bool json, FILE *to)
{
	int failed = diagnosis_run(s, errors, json, to);

	if (failed < 0)
		say("out of memory");
	return failed == 0 ? STATUS_OK : STATUS_FAILED;
}

/* What is asked for is printed, and nothing is started. errors: as for check. */
static int print(struct settings *s, const struct settings_command *command, const char *errors)
{
	struct printed printed;
	int status = STATUS_OK, rc = printed_begin(&printed);

	if (rc < 0) {
		say("out of memory");
		return STATUS_FAILED;
	}
	if (command->action == SETTINGS_HELP)
		settings_print_help(printed.to);
	else if (command->action == SETTINGS_VERSION)
		fprintf(printed.to, "gpt2d %s (%s)\n", VERSION_RELEASE, version_build);
	else if (command->action == SETTINGS_TEST)
		status = test_settings(s, command, printed.to);
	else
		status = check(s, errors, command->json, printed.to);
	rc = printed_end(&printed);
	if (rc == 0)
		return status;
	say("standard output: %s", strerror(-rc));
	return STATUS_FAILED;
}

/* Every line of it after "gpt2d: ". */
static void print_errors(char *errors)
{
	for (char *line = strtok(errors, "\n"); line != NULL; line = strtok(NULL, "\n"))
		say("%s", line);
}

/*
 * As process 1 of a container this process only reaps orphans and passes signals on to a child, in
 * which it returns. It ends with the child's exit status.
 */
static void reap_as_init(void)
{
	pid_t child, ended;
	siginfo_t came;
	sigset_t all;
	int status;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	child = fork();
	if (child <= 0) {
		signals_unblock();
		return;
	}
	for (;;) {
		if (sigwaitinfo(&all, &came) < 0)
			continue;
		/* the terminal sends its signals to the child too */
		if (came.si_signo != SIGCHLD && came.si_code != SI_KERNEL)
			kill(child, came.si_signo);
		while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
			if (ended == child)
				_exit(WIFEXITED(status) ? WEXITSTATUS(status)
							: SIGNALED + WTERMSIG(status));
	}
}

int main(int argc, char **argv)
{
	struct settings_command command;
	struct settings settings;
	char *errors = NULL;
	size_t errors_bytes = 0;
	int status = STATUS_USAGE, rc;
	FILE *to;

	signals_unblock();
	signals_ignore();
	signal(SIGCHLD, SIG_DFL); /* if it is ignored, wait() never returns a child */
	if (getpid() == 1)
		reap_as_init();
	fill_standard_streams();
	if (ulimits_raise_stack() < 0) {
		say("the stack is limited to less than %d KiB: raise ulimit -Hs, LimitSTACK= of "
		    "the unit",
			ULIMITS_STACK_KIB);
		return STATUS_FAILED;
	}
	ulimits_raise();
	umask(077); /* what runs leave behind is for whom gpt2d belongs to; others ask it */
	json_text_init();
	if (set_environment() < 0) {
		say("out of memory");
		return STATUS_FAILED;
	}
	json_object_seed(0); /* before there is a second thread */
	to = open_memstream(&errors, &errors_bytes);
	if (to == NULL) {
		say("out of memory");
		return STATUS_FAILED;
	}
	rc = settings_load(&settings, argc, argv, &command, to);
	fclose(to);
	if (rc == -EINVAL && command.action == SETTINGS_CHECK) {
		settings_finish(&settings);
		settings_init(&settings);
		status = print(&settings, &command, errors);
		goto finish;
	}
	if (rc < 0) {
		print_errors(errors);
		goto finish;
	}
	status = command.action == SETTINGS_RUN ? run_with_log(&settings, argc, argv)
						: print(&settings, &command, "");
finish:
	free(errors);
	settings_finish(&settings);
	return status;
}

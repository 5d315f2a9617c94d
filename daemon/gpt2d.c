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

#include "daemon/checks.h"
#include "daemon/daemon.h"
#include "daemon/startup.h"
#include "daemon/engines/engine_program.h"
#include "daemon/config/log.h"
#include "daemon/config/settings_load.h"
#include "proto/text.h"
#include "proto/host/cgroup.h"
#include "proto/protocol.h"
#include "proto/host/memory.h"
#include "proto/host/signals.h"
#include "proto/version.h"

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_IN_USE = 3, SIGNALED = 128 };
enum { OUTPUT_BYTES = 1 << 20, FILES_BYTES = PATH_MAX, PLACE_BYTES = PATH_MAX + 32 };

/*
 * Opens missing standard streams on /dev/null: else a lock file or a socket would get the number.
 */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

/* One line on standard error; foreign text must not control the terminal. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
	char text[4 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_shorten(text);
	text_printable(text, '?');
	fprintf(stderr, "gpt2d: %s\n", text);
}

/* The setting, or each rank's share of the processors. */
static int threads_of(const struct settings *s)
{
	const int64_t share = cgroup_processors("") / s->ranks;
	const int64_t threads = s->threads > 0 ? s->threads : share > 0 ? share : 1;

	return threads < PROTOCOL_THREADS_MAX ? (int)threads : PROTOCOL_THREADS_MAX;
}

static void log_start(const struct daemon *d)
{
	const struct engine_program *p = d->program;
	char files[FILES_BYTES];

	settings_format_files(d->settings, files, sizeof(files));
	log_write(LOG_INFO, "gpt2d %s: socket %s, state %s, settings %s", version_build, d->socket,
		d->state_dir, files[0] ? files : "of no file");
	log_write(LOG_INFO, "engine %s, ranks %lld, threads per rank %d", p->path,
		(long long)d->settings->ranks, d->threads);
	if (p->why[0] != '\0')
		log_write(LOG_INFO, "device: auto chose %s: %s",
			engine_program_device_name(p->device), p->why);
}

static void log_warning(const struct finding *f, void *arg)
{
	if (f->verdict == VERDICT_WARN)
		log_write(LOG_WARNING, "%s; %s", f->text, f->advice);
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

	rc = startup_run(&daemon, settings, error, sizeof(error));
	if (rc < 0) {
		log_finish(); /* the cause was logged before */
		say("%s", error);
		startup_undo(&daemon);
		return rc == -EBUSY ? STATUS_IN_USE : STATUS_FAILED;
	}
	log_start(&daemon);
	checks_run(CHECKS_START, settings, "", log_warning, NULL);
	event_base_dispatch(daemon.base);
	rc = startup_undo(&daemon);
	log_write(LOG_INFO, "stopped%s", rc < 0 ? "; some data could not be written" : "");
	return rc < 0 ? STATUS_FAILED : STATUS_OK;
}

/* "FILE:LINE: " of a setting that a file gives, or "". */
static const char *place_of(const struct settings *s, const char *setting, char out[PLACE_BYTES])
{
	int line = 0;
	const char *file = setting != NULL ? settings_file_of(s, setting, &line) : NULL;

	out[0] = '\0';
	if (file != NULL)
		snprintf(out, PLACE_BYTES, "%s:%d: ", file, line);
	return out;
}

struct test {
	const struct settings *settings;
	bool wrong;
};

static void say_finding(const struct finding *f, void *arg)
{
	struct test *t = arg;
	char place[PLACE_BYTES];

	if (f->verdict == VERDICT_OK)
		return;
	place_of(t->settings, f->setting, place);
	if (f->verdict == VERDICT_WARN || !settings_given(t->settings, f->setting)) {
		say("warning: %s%s", place, f->text);
	} else {
		say("%s%s", place, f->text);
		t->wrong = true;
	}
}

/* The settings in effect, as a file. */
static void print_settings(struct settings *s, FILE *to)
{
	struct engine_program program;
	char error[PATH_MAX + 512], files[FILES_BYTES];
	const bool own =
		s->engine == NULL && engine_program_find(s, &program, error, sizeof(error)) == 0;

	settings_resolve(s);
	settings_format_files(s, files, sizeof(files));
	fprintf(to, "# %s\n", files[0] ? files : "no file was read");
	settings_print(s, to);
	if (own && program.why[0] != '\0')
		fprintf(to, "# device, as auto chooses now: %s: %s\n",
			engine_program_device_name(program.device), program.why);
	if (own)
		fprintf(to, "# engine, as found now: %s\n", program.path);
}

/* -n; the errors in the file have been printed. */
static int test_settings(struct settings *s, bool verbose)
{
	struct test t = {.settings = s};
	char files[FILES_BYTES];

	settings_format_files(s, files, sizeof(files));
	checks_run(CHECKS_TEST, s, "", say_finding, &t);
	if (verbose)
		print_settings(s, stdout);
	else if (!t.wrong && files[0])
		printf("%s: the settings are valid\n", files);
	else if (!t.wrong)
		puts("no file; the settings are valid");
	return t.wrong ? STATUS_USAGE : STATUS_OK;
}

struct start {
	const struct settings *settings;
	int status; /* the exit status */
};

/* Says the first check that failed. */
static void say_failure(const struct finding *f, void *arg)
{
	struct start *start = arg;
	char place[PLACE_BYTES];

	if (f->verdict != VERDICT_FAIL || start->status != STATUS_OK)
		return;
	if (f->setting != NULL)
		say("%s%s", place_of(start->settings, f->setting, place), f->text);
	else
		say("%s; %s", f->text, f->advice);
	start->status = f->retry ? STATUS_FAILED : STATUS_USAGE;
}

static int run_with_log(struct settings *settings, int argc, char **argv)
{
	struct engine_program program;
	struct start start = {settings, STATUS_OK};
	char error[2 * PATH_MAX + 512], place[PLACE_BYTES];
	int status, rc;

	signals_hold(SIGHUP); /* a program that rotates logs may send it during the start */
	rc = engine_program_find(settings, &program, error, sizeof(error));
	if (rc < 0) {
		say("%s%s",
			place_of(settings, settings->engine != NULL ? "engine" : "device", place),
			error);
		return STATUS_USAGE;
	}
	checks_run(CHECKS_START, settings, "", say_failure, &start);
	if (start.status != STATUS_OK)
		return start.status;
	log_set_level((enum log_level)settings->log_level);
	rc = log_open(settings->log_file, error, sizeof(error));
	if (rc < 0) {
		say("%s", error);
		return rc == -EAGAIN ? STATUS_FAILED : STATUS_USAGE;
	}
	status = run(settings, &program, argc, argv);
	log_finish();
	return status;
}

/* Prints the requested output, and starts nothing. errors: as for checks_run. */
static int print(struct settings *s, const struct settings_command *command, const char *errors)
{
	int status = STATUS_OK;

	/* in one piece, so that an error of the write is known at the end */
	if (!isatty(STDOUT_FILENO))
		setvbuf(stdout, memory_zeroed(1, OUTPUT_BYTES), _IOFBF, OUTPUT_BYTES);
	if (command->action == SETTINGS_HELP)
		settings_print_help(stdout);
	else if (command->action == SETTINGS_VERSION)
		printf("gpt2d %s (%s)\n", VERSION_RELEASE, version_build);
	else if (command->action == SETTINGS_TEST)
		status = test_settings(s, command->verbose);
	else
		status = checks_print(s, errors, command->json, stdout) == 0 ? STATUS_OK
									     : STATUS_FAILED;
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	say("standard output: %s", errno != 0 ? strerror(errno) : "not all of it was written");
	return STATUS_FAILED;
}

/* Each line after "gpt2d: ". */
static void print_errors(char *errors)
{
	for (char *line = strtok(errors, "\n"); line != NULL; line = strtok(NULL, "\n"))
		say("%s", line);
}

/*
 * As process 1 of a container this process only reaps orphans and passes signals on to a child, in
 * which the function returns. It ends with the child's exit status.
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
	char *errors;
	size_t errors_bytes;
	int status = STATUS_USAGE, rc;
	FILE *to;

	signals_unblock();
	signals_ignore();
	signal(SIGCHLD, SIG_DFL); /* if it is ignored, wait() never returns a child */
	if (getpid() == 1)
		reap_as_init();
	fill_standard_streams();
	checks_raise_limits();
	umask(077); /* other users read the files of runs through gpt2d */
	memory_use_for_json();
	/*
	 * For the engine, before there is a second thread: OpenBLAS starts a thread for each
	 * processor before main, which the CPU engine does not use.
	 */
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	json_object_seed(0); /* before there is a second thread */
	to = memory_stream(&errors, &errors_bytes);
	rc = settings_load(&settings, argc, argv, &command, to);
	memory_stream_end(to);
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

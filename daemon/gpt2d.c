/* gpt2d: the daemon's main: settings, log, loop. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/place.h"
#include "daemon/settings.h"
#include "proto/protocol.h"
#include "proto/version.h"

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_IN_USE = 3 };

/* A standard stream that came closed keeps its number: else a lock file or a socket gets it. */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
}

/* Descriptors for as many clients as the system lets us have. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_write(LOG_WARNING, "descriptors: the limit cannot be raised: %s",
			strerror(errno));
}

/* Settings that were left open. */
static int complete(struct settings *s, char *error, size_t error_bytes)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	char engine[SPEC_PATH_MAX];
	int rc = place_engine(s->engine, engine, sizeof(engine), error, error_bytes);

	if (rc == 0)
		rc = settings_set(s, "engine", engine, error, error_bytes);
	if (rc == 0 && s->threads == 0)
		s->threads = processors > s->ranks ? processors / s->ranks : 1;
	if (s->threads > PROTOCOL_THREADS_MAX)
		s->threads = PROTOCOL_THREADS_MAX; /* only where they were left open */
	return rc;
}

static int run(struct settings *settings)
{
	struct daemon daemon = {0};
	char error[1024];
	int rc;

	rc = daemon_start(&daemon, settings, error, sizeof(error));
	if (rc < 0) {
		fprintf(stderr, "gpt2d: %s\n", error);
		daemon_finish(&daemon);
		return rc == -EBUSY ? STATUS_IN_USE : STATUS_FAILED;
	}
	log_write(LOG_INFO, "gpt2d %s: socket %s, state %s, engine %s, %lld ranks of %lld threads",
		version_build, daemon.socket, daemon.state_dir, settings->engine,
		(long long)settings->ranks, (long long)settings->threads);
	event_base_dispatch(daemon.base);
	rc = daemon_finish(&daemon);
	log_write(LOG_INFO, "gpt2d: stopped%s", rc < 0 ? "; not everything could be written" : "");
	return rc < 0 ? STATUS_FAILED : STATUS_OK;
}

int main(int argc, char **argv)
{
	enum settings_action action;
	struct settings settings;
	char error[512];
	int status = STATUS_USAGE, rc;

	fill_standard_streams();
	umask(077); /* what runs leave behind is for whom gpt2d belongs to; others ask it */
	json_object_seed(0); /* before there is a second thread */
	settings_init(&settings);
	rc = settings_parse(&settings, argc, argv, &action, error, sizeof(error));
	if (rc == 0 && action == SETTINGS_HELP) {
		settings_print_help(stdout);
		status = STATUS_OK;
		goto finish;
	}
	if (rc == 0 && action == SETTINGS_VERSION) {
		printf("gpt2d %s (%s)\n", VERSION_RELEASE, version_build);
		status = STATUS_OK;
		goto finish;
	}
	if (rc == 0)
		rc = complete(&settings, error, sizeof(error));
	if (rc < 0) {
		fprintf(stderr, "gpt2d: %s\n", error);
		goto finish;
	}
	rc = log_open(settings.log, settings.verbose);
	if (rc < 0) {
		fprintf(stderr, "gpt2d: %s: %s\n", settings.log, strerror(-rc));
		goto finish;
	}
	raise_descriptors();
	status = run(&settings);
finish:
	settings_finish(&settings);
	return status;
}

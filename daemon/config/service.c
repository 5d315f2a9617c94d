#include "daemon/config/service.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "daemon/config/clock.h"
#include "daemon/daemon.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "daemon/config/log.h"
#include "daemon/config/notify.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/config/settings_load.h"
#include "daemon/store/store.h"

enum { STATUS_US = 2000000 };

struct service {
	struct store_job job; /* first: a question to the store's thread */
	struct daemon *daemon;
	struct event *timer;
	char status[480];
	bool watched; /* systemd wants a sign of life */
	bool asked;   /* the question is with the store's thread */
	bool answered;
};

static int work(struct store_job *job, struct sqlite3 *db)
{
	return 0;
}

static void answer(struct store_job *job, int rc)
{
	struct service *s = (struct service *)(void *)job;

	s->asked = false;
	s->answered = true;
}

static void tell_status(struct service *s)
{
	const struct daemon *d = s->daemon;
	const struct run *run = scheduler_running(d->scheduler);
	char status[sizeof(s->status)], running[32] = "no run", since[CLOCK_TEXT_BYTES];
	char disk[320] = "";
	struct store_failure failure;

	if (run != NULL)
		snprintf(running, sizeof(running), "run %lld", (long long)run->id);
	if (store_failure(d->store, &failure)) {
		clock_text(failure.since_ns, since);
		snprintf(disk, sizeof(disk), ", %.200s: %s since %s", failure.path,
			store_error_text(failure.rc), since);
	}
	snprintf(status, sizeof(status), "engines %s, %s running, %lld queued%s%s",
		engine_pool_state_name(d->pool), running, (long long)queue_length(d->queue),
		hold_is_set(d->holds, HOLD_DRAINED) ? ", drained" : "", disk);
	if (strcmp(status, s->status) == 0)
		return;
	strcpy(s->status, status);
	notify_send("STATUS=%s", status);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct service *s = arg;

	if (!s->daemon->stopping)
		tell_status(s);
	if (!s->watched)
		return;
	if (s->answered)
		notify_send("WATCHDOG=1");
	s->answered = false;
	if (!s->asked) {
		s->asked = true;
		s->job.kind = STORE_READ;
		s->job.work = work;
		s->job.done = answer;
		store_add(s->daemon->store, &s->job);
	}
}

int service_create(struct daemon *d, struct service **out)
{
	uint64_t watchdog_us = 0, every_us = STATUS_US;
	bool watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
	struct timeval every;
	struct service *s;

	*out = NULL;
	notify_send("READY=1\nSTATUS=engines starting");
	if (getenv("NOTIFY_SOCKET") == NULL)
		return 0;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->daemon = d;
	s->watched = watched;
	if (watched && watchdog_us / 2 < every_us)
		every_us = watchdog_us / 2;
	every = (struct timeval){(time_t)(every_us / 1000000), (suseconds_t)(every_us % 1000000)};
	s->timer = event_new(d->base, -1, EV_PERSIST, on_timer, s);
	if (s->timer == NULL || event_add(s->timer, &every) < 0) {
		service_destroy(s);
		return -ENOMEM;
	}
	on_timer(-1, 0, s);
	*out = s;
	return 0;
}

void service_destroy(struct service *s)
{
	if (s == NULL)
		return;
	if (s->timer)
		event_free(s->timer);
	free(s);
}

/* ---- settings anew ---- */

static void told(const char *name, const char *before, const char *after, bool taken, void *arg)
{
	int *n_taken = arg;

	*n_taken += taken;
	log_write(taken ? LOG_INFO : LOG_WARNING, "settings: %s: %s -> %s%s", name,
		before[0] ? before : "(default)", after[0] ? after : "(default)",
		taken ? "" : ": not before gpt2d is started anew");
}

static void reread(struct daemon *d)
{
	struct settings_command command;
	struct settings fresh;
	char *errors = NULL;
	size_t n = 0;
	FILE *to = open_memstream(&errors, &n);
	int rc, taken = 0;

	if (to == NULL) {
		log_write(LOG_ERROR, "settings: out of memory, nothing was read anew");
		return;
	}
	rc = settings_load(&fresh, d->words.argc, d->words.argv, &command, to);
	fclose(to);
	for (char *line = strtok(errors, "\n"); line != NULL; line = strtok(NULL, "\n"))
		log_write(LOG_ERROR, "settings: %s", line);
	if (rc < 0) {
		log_write(LOG_ERROR, "settings: wrong, and left as they were");
	} else {
		settings_take(d->words.settings, &fresh, told, &taken);
		log_set_level((enum log_level)d->settings->log_level);
		log_write(LOG_INFO, "settings: read anew from %s, %d changed",
			fresh.config_file ? fresh.config_file : "no file", taken);
	}
	settings_finish(&fresh);
	free(errors);
}

void service_reload(struct daemon *d)
{
	notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_mono_ns() / 1000);
	log_reopen();
	reread(d);
	notify_send("READY=1");
}

#include "daemon/config/service.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "daemon/config/log.h"
#include "daemon/config/settings_load.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"

enum { STATUS_US = 2000000, STATUS_BYTES = 480, LOG_FILES_BYTES = 1024 };

struct service {
	struct service_options o;
	struct event *timer;
	double period_s;
	char status[STATUS_BYTES];
	bool watched; /* systemd wants heartbeats */
};

void service_notify(const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (sd_notify(0, message) < 0)
		log_write(LOG_WARNING, "NOTIFY_SOCKET: systemd was not notified: %s", message);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	char status[STATUS_BYTES] = "";
	struct service *s = arg;

	s->o.describe(status, sizeof(status), s->o.arg);
	if (status[0] != '\0' && strcmp(status, s->status) != 0) {
		strcpy(s->status, status);
		service_notify("STATUS=%s", status);
	}
	if (s->watched && s->o.busy_s(s->o.arg) < s->period_s)
		service_notify("WATCHDOG=1");
}

struct service *service_create(const struct service_options *options)
{
	uint64_t watchdog_us = 0, every_us = STATUS_US;
	struct timeval every;
	struct service *s;

	service_notify("READY=1\nSTATUS=starting"); /* the engines start with the loop */
	if (getenv("NOTIFY_SOCKET") == NULL)
		return NULL;
	s = memory_zeroed(1, sizeof(*s));
	s->o = *options;
	s->watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
	if (s->watched && watchdog_us / 2 < every_us)
		every_us = watchdog_us / 2;
	s->period_s = (double)every_us / 1e6;
	every = (struct timeval){(time_t)(every_us / 1000000), (suseconds_t)(every_us % 1000000)};
	s->timer = event_new(s->o.base, -1, EV_PERSIST, on_timer, s);
	event_add(s->timer, &every);
	return s;
}

void service_destroy(struct service *s)
{
	if (s == NULL)
		return;
	event_free(s->timer);
	free(s);
}

/* ---- reload ---- */

static void log_change(
	const char *name, const char *before, const char *after, bool taken, void *arg)
{
	int *n_taken = arg;

	*n_taken += taken;
	log_write(taken ? LOG_INFO : LOG_WARNING, "settings: %s: %s -> %s%s", name,
		before[0] ? before : "(default)", after[0] ? after : "(default)",
		taken ? "" : ": only after gpt2d is restarted");
}

static void reload_settings(struct settings *settings, int argc, char **argv)
{
	struct settings_command command;
	struct settings fresh;
	char *errors, files[LOG_FILES_BYTES];
	size_t n;
	FILE *to = memory_stream(&errors, &n);
	int rc = settings_load(&fresh, argc, argv, &command, to), taken = 0;

	memory_stream_end(to);
	for (char *line = strtok(errors, "\n"); line != NULL; line = strtok(NULL, "\n"))
		log_write(LOG_ERROR, "settings: %s", line);
	if (rc < 0) {
		log_write(LOG_ERROR, "settings: errors, the old settings stay");
	} else {
		settings_take(settings, &fresh, log_change, &taken);
		log_set_level((enum log_level)settings->log_level);
		settings_format_files(&fresh, files, sizeof(files));
		log_write(LOG_INFO, "settings: read again from %s, %d changed",
			files[0] ? files : "no file", taken);
	}
	settings_finish(&fresh);
	free(errors);
}

void service_reload(struct settings *settings, int argc, char **argv)
{
	service_notify("RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_mono_ns() / 1000);
	log_reopen();
	reload_settings(settings, argc, argv);
	service_notify("READY=1");
}

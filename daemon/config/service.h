/*
 * service.h: gpt2d as a service of systemd: messages to systemd, the watchdog, and the reload of
 * the settings. gpt2d is ready when clients can connect: clients can ask why engines do not start.
 */
#ifndef GPT2D_DAEMON_CONFIG_SERVICE_H
#define GPT2D_DAEMON_CONFIG_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct service;
struct settings;

/* sd_notify(3): "READY=1", "STATUS=...". Does nothing without NOTIFY_SOCKET. */
void service_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct service_options {
	struct event_base *base;
	/* The status in words; "" leaves the last one. Called every 2 s. */
	void (*describe)(char *status, size_t status_bytes, void *arg);
	/* How long the store's thread has been busy with one thing. A heartbeat for the watchdog is
	 * left out if that is a whole period. */
	double (*busy_s)(void *arg);
	void *arg;
};

/* READY: the socket listens. NULL without NOTIFY_SOCKET. */
struct service *service_create(const struct service_options *options);
void service_destroy(struct service *s); /* takes NULL */

/*
 * SIGHUP: reopens the log, reads the settings from the same words and files again, and applies the
 * settings that may change.
 */
void service_reload(struct settings *settings, int argc, char **argv);

#endif

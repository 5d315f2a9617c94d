/*
 * service.h: gpt2d as a service of systemd: that it is ready, what it does, that it lives. READY
 * comes when clients can connect: engines that do not come up are a thing to be asked about, and a
 * new gpt2d would have the same. The watchdog is fed by the loop, and only while the store's thread
 * answers as well.
 */
#ifndef GPT2D_DAEMON_CONFIG_SERVICE_H
#define GPT2D_DAEMON_CONFIG_SERVICE_H

struct daemon;
struct service;

/* 0 with *out NULL when nobody asked; or -ENOMEM. The socket listens. */
int service_create(struct daemon *d, struct service **out);
void service_destroy(struct service *s); /* after the store is closed; takes NULL */

/* SIGHUP: open the log anew, read the settings anew, and take over those that may change. */
void service_reload(struct daemon *d);

#endif

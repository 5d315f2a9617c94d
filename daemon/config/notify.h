/* notify.h: a message to systemd, when it asked for some (NOTIFY_SOCKET). */
#ifndef GPT2D_DAEMON_CONFIG_NOTIFY_H
#define GPT2D_DAEMON_CONFIG_NOTIFY_H

/* "READY=1", "STATUS=...": sd_notify(3). */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

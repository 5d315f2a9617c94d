#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

#include "daemon/log.h"

void notify_ready(const char *status)
{
	int rc = sd_notifyf(0, "READY=1\nSTATUS=%s", status);

	if (rc < 0)
		log_write(LOG_WARNING, "NOTIFY_SOCKET: systemd was not told that gpt2d is ready");
}

void notify_stopping(void)
{
	if (sd_notify(0, "STOPPING=1") < 0)
		log_write(LOG_WARNING, "NOTIFY_SOCKET: systemd was not told that gpt2d stops");
}

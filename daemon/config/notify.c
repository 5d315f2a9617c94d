#include "daemon/config/notify.h"

#include <stdarg.h>
#include <stdio.h>
#include <systemd/sd-daemon.h>

#include "daemon/config/log.h"

void notify_send(const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (sd_notify(0, message) < 0)
		log_write(LOG_WARNING, "NOTIFY_SOCKET: systemd was not told: %s", message);
}

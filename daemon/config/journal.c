#include "daemon/config/journal.h"

#include <errno.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

const char journal_socket[] = "/run/systemd/journal/socket";

int journal_there(void)
{
	return access(journal_socket, W_OK) < 0 ? -errno : 0;
}

void journal_write(int severity, const char *line)
{
	static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERR};

	sd_journal_send("MESSAGE=%s", line, "PRIORITY=%d", priorities[severity],
		"SYSLOG_IDENTIFIER=gpt2d", NULL);
}

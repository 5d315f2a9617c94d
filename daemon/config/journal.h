/* journal.h: systemd's journal. */
#ifndef GPT2D_DAEMON_CONFIG_JOURNAL_H
#define GPT2D_DAEMON_CONFIG_JOURNAL_H

extern const char journal_socket[]; /* where it listens */

int journal_there(void); /* 0, or a negative errno of journal_socket: there is no journal */
/* severity: 0 debug, 1 info, 2 warning, 3 error. */
void journal_write(int severity, const char *line);

#endif

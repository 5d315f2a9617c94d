/* journal.h: systemd's journal. */
#ifndef GPT2D_JOURNAL_H
#define GPT2D_JOURNAL_H

int journal_there(void); /* 0, or a negative errno: there is no journal */
/* severity: 0 debug, 1 info, 2 warning, 3 error. */
void journal_write(int severity, const char *line);

#endif

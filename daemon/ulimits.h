/*
 * ulimits.h: what the system limits of gpt2d, and with it of its engines.
 */
#ifndef GPT2D_ULIMITS_H
#define GPT2D_ULIMITS_H

struct settings;

/*
 * Descriptors, processor time and the size of files are soft limits for what is started by hand:
 * gpt2d takes what the hard ones let it have. Before there is a second thread.
 */
void ulimits_raise(void);

/* Says in the log what is less than wanted; 0, or -EMFILE where hardly any client could connect. */
int ulimits_check(const struct settings *settings);

#endif

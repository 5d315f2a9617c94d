/*
 * ulimits.h: what the system limits of gpt2d, and with it of its engines.
 */
#ifndef GPT2D_DAEMON_CONFIG_ULIMITS_H
#define GPT2D_DAEMON_CONFIG_ULIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct settings;

enum { ULIMITS_TEXT_BYTES = 192, ULIMITS_STACK_KIB = 1024 };

/* With descriptors for fewer clients, its own user's gpt2ctl might not reach gpt2d. */
enum { ULIMITS_CLIENTS_MIN = 16 };

/* Descriptors that clients leave to the engines of so many ranks, the database and files. */
int64_t ulimits_descriptors_kept(int64_t ranks);

/* What clients can have of the descriptors, in words. */
struct ulimits_descriptors {
	bool too_few;       /* gpt2d cannot start with them */
	const char *advice; /* NULL: they do for all the clients that the settings allow */
	char text[ULIMITS_TEXT_BYTES]; /* what there are, and what for */
};

/*
 * Descriptors, processor time and the size of files are soft limits for what is started by hand:
 * gpt2d takes what the hard ones let it have. Before there is a second thread.
 */
void ulimits_raise(void);

/*
 * The same of the stack, up to what is usual: threads to come and engines have it too. 0, or
 * -ENOMEM where the hard limit is less than the functions of gpt2d take; then little may be called.
 */
int ulimits_raise_stack(void);

/* Says in the log what is less than wanted; 0, or -EMFILE where hardly any client could connect. */
int ulimits_check(const struct settings *settings);

/* By the hard limit, which ulimits_raise takes: 0, or a negative errno when it cannot be read. */
int ulimits_descriptors(const struct settings *settings, struct ulimits_descriptors *out);

#endif

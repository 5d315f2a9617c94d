/* startup.h: starts the parts of gpt2d, connects them with each other, and destroys them. */
#ifndef GPT2D_DAEMON_STARTUP_H
#define GPT2D_DAEMON_STARTUP_H

#include <stddef.h>

struct daemon;
struct settings;

/*
 * Starts everything in the event loop, from settings (and program, threads and words, which the
 * caller has set): 0, or a negative errno with error.
 */
int startup_run(struct daemon *d, const struct settings *settings, char *error, size_t error_bytes);
/* Undoes startup_run, also after it failed. 0, or -EIO: not everything is on disk. */
int startup_undo(struct daemon *d);

#endif

/*
 * ctl.h: what every verb gets: where to print and how, and which daemon is meant. A verb returns
 * the exit code of the process (enum ctl_exit in proto/protocol.h).
 */
#ifndef GPT2D_CTL_CTL_H
#define GPT2D_CTL_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "ctl/print/term.h"
#include "proto/protocol.h"

struct output;

struct ctl {
	const char *verb; /* its name: failures of what it asks go by it; NULL: none was given */
	const char *socket; /* --socket, or NULL: client.c decides */
	const struct output *output;
	bool json;
	bool drawn;      /* the terminal shows a picture (screen.h): nothing is written into it */
	bool out_failed; /* a write to stdout failed: nothing more is tried, exit 1 */
	bool out_unread; /* it failed as the reader went away: exit 141 */
	struct term out; /* stdout */
	struct term err; /* stderr */
};

/* Why something did not work, and with which code the process ends. */
struct ctl_error {
	int exit; /* enum ctl_exit */
	char message[1536];
	int code;     /* the daemon's, enum protocol_error; 0: not one of its */
	json_t *data; /* what it sent beside it, or NULL; owned */
};

/* Fill e and return exit. */
int ctl_error_set(struct ctl_error *e, int exit, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void ctl_error_clear(struct ctl_error *e);
/* As --json shows it: {exit, message, code, data}. */
json_t *ctl_error_json(const struct ctl_error *e);

/* Tell the user through ctl->output, release e, and return its exit code. */
int ctl_fail(struct ctl *ctl, struct ctl_error *e);
/*
 * All of a verb that asks one question: method is sent on a connection of its own, its reply goes
 * to print (one of ctl->output). changes: it is no mere question (output_tell_done). Takes params.
 * The exit code; a failure has been told to the user.
 */
int ctl_ask(struct ctl *ctl, const char *method, json_t *params, bool changes,
	void (*print)(struct ctl *ctl, const json_t *reply));

#endif

/* ctl_error.h: an error, and the exit code with which the process ends. */
#ifndef GPT2D_CTL_LINK_CTL_ERROR_H
#define GPT2D_CTL_LINK_CTL_ERROR_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/protocol.h"

struct ctl_error {
	int exit;           /* enum ctl_exit */
	char message[1536]; /* the problem; each further line is a next step */
	int code;           /* of gpt2d's error, enum protocol_error; 0: gpt2d sent no error */
	json_t *data;       /* data of gpt2d's error, or NULL; owned */
};

/* Fill e and return exit. */
int ctl_error_set(struct ctl_error *e, int exit, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Add a line to the message. Returns e's exit code. */
int ctl_error_add(struct ctl_error *e, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void ctl_error_clear(struct ctl_error *e);

/* The exit statuses of gpt2ctl, as rows for help and the manual page. */
struct ctl_exit_row {
	enum ctl_exit code;
	const char *brief; /* in the overview */
	const char *text;  /* in the manual page */
};

/* Ends with a row whose brief is NULL. */
extern const struct ctl_exit_row ctl_exits[];

/* Whether it is unknown with this status if gpt2d performed the request. */
bool ctl_error_leaves_open(int exit);
/* The status for an error of the protocol (enum protocol_error). */
int ctl_error_exit(int code);

#endif

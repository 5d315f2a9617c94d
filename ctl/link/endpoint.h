/*
 * endpoint.h: the socket to connect to, the process that listens on it, and the errors if that
 * process cannot be reached or does not answer.
 */
#ifndef GPT2D_CTL_LINK_ENDPOINT_H
#define GPT2D_CTL_LINK_ENDPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/un.h>

#include "ctl/link/ctl_error.h"

struct endpoint {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pid_t pid;          /* of the process that listens; 0: unknown */
	bool named;         /* --socket or GPT2D_SOCKET gave the path */
	char own[PATH_MAX]; /* the user's own socket if it does not exist, or "" */
};

/*
 * socket: the value of --socket, or NULL. 0, or CTL_USAGE with e if the path is too long for a
 * socket.
 */
int endpoint_find(const char *socket, struct endpoint *out, struct ctl_error *e);
/* Sets pid from the connected fd. */
void endpoint_identify(struct endpoint *p, int fd);
/* Whether the process is stopped (SIGSTOP), so that it cannot answer. */
bool endpoint_is_stopped(const struct endpoint *p);

/* connect() failed with error: an exit code with e. */
int endpoint_unreachable(const struct endpoint *p, int error, struct ctl_error *e);
/*
 * No answer for this many seconds: CTL_TIMEOUT with e and advice. limited: the user's own time
 * limit passed.
 */
int endpoint_timed_out(const struct endpoint *p, double seconds, bool limited, struct ctl_error *e);
/* Print that gpt2ctl still waits. asked: the verb or method, NULL before gpt2d's hello. */
void endpoint_print_waiting(const struct endpoint *p, FILE *to, const char *asked, double seconds);

#endif

/*
 * endpoint.h: the socket that is meant, which process should answer there, and what to say when
 * none does.
 */
#ifndef GPT2D_CTL_LINK_ENDPOINT_H
#define GPT2D_CTL_LINK_ENDPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/un.h>

#include "ctl/ctl.h"

struct endpoint {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pid_t pid;          /* who listens there; 0: not known */
	bool named;         /* --socket or GPT2D_SOCKET says so; else the places are looked at */
	char own[PATH_MAX]; /* the user's own, where that was looked at and is not there; or "" */
};

/* Which socket ctl means; 0, or CTL_USAGE with e when it cannot be a socket's name. */
int endpoint_find(const struct ctl *ctl, struct endpoint *out, struct ctl_error *e);
/* Who listens, once fd is connected. */
void endpoint_ask(struct endpoint *p, int fd);

/* It is there, and stopped (SIGSTOP): it will not answer. */
bool endpoint_is_stopped(const struct endpoint *p);

/* It cannot be connected to: an exit code with e, by errno. */
int endpoint_absent(const struct endpoint *p, int error, struct ctl_error *e);
/*
 * Nothing came for so many seconds: CTL_TIMEOUT with e, which says what can be done. own: it is the
 * caller's limit that is over, which says nothing of gpt2d.
 */
int endpoint_silent(const struct endpoint *p, double seconds, bool own, struct ctl_error *e);
extern const char endpoint_time_over[]; /* such a message begins with it */
/* A line of the same while it is waited on; asked: the method, NULL when nothing has been heard of
 * gpt2d yet. */
void endpoint_notice(const struct endpoint *p, FILE *to, const char *asked, double seconds);
/* A line on that it answers again, after such words. */
void endpoint_answers(const struct endpoint *p, FILE *to);

#endif

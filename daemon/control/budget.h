/*
 * budget.h: the memory that output for clients may take, all of them together. Output that a client
 * has not read counts towards a share of its user and a limit of all; requests whose answers may be
 * large are worked on a few at a time, users in turn, while both leave room. A client that takes
 * nothing of its output while another waits for that room is dropped after a few seconds, and
 * memory of large answers goes back to the system.
 */
#ifndef GPT2D_DAEMON_CONTROL_BUDGET_H
#define GPT2D_DAEMON_CONTROL_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct event_base;
struct budget;

enum {
	BUDGET_AT_WORK = 8,   /* requests worked on at once, */
	BUDGET_USER_WORK = 4, /* of one user: hashing a large file takes long */
	BUDGET_USER_PART = 4, /* a user's share is the limit divided by it */
	BUDGET_UNREAD_S = 5,  /* output lies untouched for it, then it may be dropped for others */
	BUDGET_KEPT_BYTES = 64 << 10, /* no client with less unread is dropped */
};

/* What a client holds, and its request with a large answer. All zero but for the first three. */
struct budget_account {
	uid_t uid;
	void (*begin)(struct budget_account *account); /* it has its turn, until budget_end */
	void (*drop)(struct budget_account *account);  /* may end what it lies in */
	TAILQ_ENTRY(budget_account) link, hold;
	bool waiting, working;
	size_t bytes;     /* unread */
	int64_t taken_ns; /* monotonic: when its bytes last grew from none, or shrank */
};

/* limit_bytes: held for all together before requests with large answers wait. NULL without memory.
 */
struct budget *budget_create(struct event_base *base, int64_t limit_bytes);
void budget_destroy(struct budget *b); /* when no account waits or holds anything; takes NULL */

/* What lies unread of a client by now. */
void budget_hold(struct budget *b, struct budget_account *account, size_t bytes);
/* Who has output unread does not get more while that of all is too much. */
bool budget_full(const struct budget *b);

/* account->begin is called in a later round of the loop. */
void budget_want(struct budget *b, struct budget_account *account);
/* It was answered, or waits no more; nothing happens where it does not wait or have its turn. */
void budget_end(struct budget *b, struct budget_account *account);
/* It goes: it ends, and holds nothing. */
void budget_forget(struct budget *b, struct budget_account *account);

#endif

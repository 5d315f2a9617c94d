#include "daemon/runs/cancel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/control/reply.h"
#include "daemon/daemon.h"
#include "daemon/runs/queue.h"
#include "daemon/runs/scheduler.h"
#include "daemon/store/store.h"
#include "proto/protocol.h"

struct wait {
	TAILQ_ENTRY(wait) link;
	int64_t run;
	struct reply *reply;
	bool already; /* it was ending before */
};

struct cancels {
	TAILQ_HEAD(wait_head, wait) waits;
};

struct cancels *cancel_create(void)
{
	struct cancels *c = malloc(sizeof(*c));

	if (c != NULL)
		TAILQ_INIT(&c->waits);
	return c;
}

static void forget(struct cancels *c, struct wait *w)
{
	TAILQ_REMOVE(&c->waits, w, link);
	free(w);
}

void cancel_destroy(struct cancels *c)
{
	if (c == NULL)
		return;
	while (!TAILQ_EMPTY(&c->waits)) {
		reply_drop(TAILQ_FIRST(&c->waits)->reply);
		forget(c, TAILQ_FIRST(&c->waits));
	}
	free(c);
}

static void answer(struct reply *reply, const struct run *run, bool already)
{
	reply_result(reply,
		json_pack("{sI ss sb}", "id", (json_int_t)run->id, "state",
			run_state_name(run->state), "already", already));
}

/* In memory only: true as long as this gpt2d lives. */
static void refuse(struct daemon *d, struct reply *reply, const struct run *run)
{
	struct store_failure failure = {0};
	const char *until = "it is tried again as long as gpt2d lives";

	store_failure(d->store, &failure);
	if (failure.rc == -EBADMSG)
		until = "nothing more is written until gpt2d is started again";
	else if (failure.rc == -ESTALE)
		until = "nothing is written until it is put back, and it is lost if gpt2d ends"
			" before";
	reply_error(reply, PROTOCOL_STORE, NULL,
		"run %lld: is %s, but that is not on disk: %s: %s; %s", (long long)run->id,
		run_state_name(run->state), failure.path, store_error_text(failure.rc), until);
}

static struct wait *find(const struct cancels *c, int64_t run, const struct reply *reply)
{
	struct wait *w;

	TAILQ_FOREACH(w, &c->waits, link)
		if (w->run == run && (reply == NULL || w->reply == reply))
			return w;
	return NULL;
}

void cancel_settled(struct daemon *d, const struct run *run, bool late)
{
	struct reply *reply;
	struct wait *w;
	bool already;

	/* who is answered may ask for more at once: nothing of the list is held over an answer */
	while ((w = find(d->cancels, run->id, NULL)) != NULL) {
		reply = w->reply;
		already = late || w->already || run->state != RUN_CANCELLED;
		forget(d->cancels, w);
		answer(reply, run, already);
	}
}

/* The first whose run has ended in memory; *run is that. */
static struct wait *first_ended(const struct daemon *d, struct run **run)
{
	struct wait *w;

	TAILQ_FOREACH(w, &d->cancels->waits, link) {
		*run = queue_find(d->queue, w->run);
		if (*run != NULL && run_state_ended((*run)->state))
			return w;
	}
	return NULL;
}

void cancel_store_fails(struct daemon *d)
{
	struct reply *reply;
	struct run *run;
	struct wait *w;

	while ((w = first_ended(d, &run)) != NULL) {
		reply = w->reply;
		forget(d->cancels, w);
		refuse(d, reply, run);
	}
}

void cancel_begin(struct daemon *d, struct reply *reply, struct run *run)
{
	struct wait *w = malloc(sizeof(*w));
	int rc;

	if (w == NULL) {
		reply_error(reply, PROTOCOL_INTERNAL, NULL, "out of memory");
		return;
	}
	*w = (struct wait){.run = run->id, .reply = reply};
	TAILQ_INSERT_TAIL(&d->cancels->waits, w, link);
	rc = scheduler_cancel(d->scheduler, run);
	/* a store that fails may have answered it already */
	w = find(d->cancels, run->id, reply);
	if (w == NULL)
		return;
	if (rc == -EALREADY && run->state == RUN_FINISHING) {
		forget(d->cancels, w);
		answer(reply, run, true);
		return;
	}
	w->already = rc == -EALREADY;
	if (store_failing(d->store))
		cancel_store_fails(d);
}

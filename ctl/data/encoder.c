#include "ctl/data/encoder.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/data/json_line.h"
#include "proto/host/memory.h"
#include "proto/host/thread.h"

enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_TAKEN, SLOT_DONE };

/* A part in the ring of slots, which are filled, encoded and emptied in turn. */
struct slot {
	enum slot_state state;
	struct documents_part part;
	struct token_list tokens;
	int64_t separators;
	int32_t largest;
	struct ctl_error error;
};

struct encoder {
	const struct encoder_job *job;
	struct slot *slots;
	size_t n_slots;
	pthread_mutex_t lock; /* of states, next and ended */
	pthread_cond_t filled, done;
	size_t next; /* the next slot for a thread */
	bool ended;
	pthread_t *threads;
	int n_threads;
};

/* ---- in the threads ---- */

static void add_separator(const struct tokenizer *t, struct slot *s)
{
	tokenizer_reserve(&s->tokens, 1);
	s->tokens.ids[s->tokens.n++] = (uint16_t)t->separator;
	s->separators++;
}

/* Tokens of a document or a part of it, with its separators. */
static void encode_document(const struct tokenizer *t, void *thread, struct slot *s,
	const unsigned char *text, size_t n, bool first, bool begins, bool ends)
{
	if (begins && !first && !t->kind->separator_last)
		add_separator(t, s);
	t->kind->encode(t, thread, text, n, &s->tokens);
	if (ends && t->kind->separator_last)
		add_separator(t, s);
}

static void encode_lines(const struct encoder_job *job, void *thread, struct slot *s)
{
	const unsigned char *at = s->part.bytes, *end = at + s->part.n, *next;
	int64_t line = s->part.line, document = s->part.before;
	struct json_line json = {0};
	char why[512];

	for (; at < end && s->error.exit == 0; at = next, line++) {
		const unsigned char *stop = memchr(at, '\n', (size_t)(end - at));
		const size_t n = (size_t)((stop ? stop : end) - at);

		next = stop ? stop + 1 : end;
		if (documents_is_empty(at, n))
			continue;
		if (json_line_read(&json, at, n, job->field, why, sizeof(why)) != 0)
			ctl_error_set(&s->error, CTL_USAGE, "%.800s:%lld: %s", s->part.name,
				(long long)line, why);
		else
			encode_document(job->tokenizer, thread, s, json.text, json.n, document == 0,
				true, true);
		s->tokens.replaced += json.replaced;
		document++;
	}
	json_line_finish(&json);
}

static void encode(const struct encoder_job *job, void *thread, struct slot *s)
{
	const struct documents_part *p = &s->part;

	s->tokens.n = 0;
	s->tokens.replaced = 0;
	s->separators = 0;
	s->largest = -1;
	if (p->lines)
		encode_lines(job, thread, s);
	else
		encode_document(job->tokenizer, thread, s, p->bytes, p->n, p->before == 0,
			p->begins, p->ends);
	for (size_t i = 0; i < s->tokens.n; i++) {
		if (s->tokens.ids[i] > s->largest)
			s->largest = s->tokens.ids[i];
	}
}

static void *run(void *arg)
{
	struct encoder *r = arg;
	const struct tokenizer *t = r->job->tokenizer;
	void *thread = t->kind->thread_begin ? t->kind->thread_begin(t) : NULL;

	pthread_mutex_lock(&r->lock);
	while (!r->ended) {
		struct slot *s = &r->slots[r->next % r->n_slots];

		if (s->state != SLOT_WAITING) {
			pthread_cond_wait(&r->filled, &r->lock);
			continue;
		}
		s->state = SLOT_TAKEN;
		r->next++;
		pthread_mutex_unlock(&r->lock);
		encode(r->job, thread, s);
		pthread_mutex_lock(&r->lock);
		s->state = SLOT_DONE;
		pthread_cond_signal(&r->done);
	}
	pthread_mutex_unlock(&r->lock);
	if (t->kind->thread_end)
		t->kind->thread_end(thread);
	return NULL;
}

/* ---- in the caller's thread ---- */

static void set_state(struct encoder *r, struct slot *s, enum slot_state state)
{
	pthread_mutex_lock(&r->lock);
	s->state = state;
	pthread_cond_signal(&r->filled);
	pthread_mutex_unlock(&r->lock);
}

/* Waits for a filled slot, and passes its tokens on. */
static int empty(struct encoder *r, struct slot *s, struct ctl_error *e)
{
	struct encoder_part part;
	bool was_filled;

	pthread_mutex_lock(&r->lock);
	while (s->state == SLOT_WAITING || s->state == SLOT_TAKEN)
		pthread_cond_wait(&r->done, &r->lock);
	was_filled = s->state == SLOT_DONE;
	s->state = SLOT_FREE;
	pthread_mutex_unlock(&r->lock);
	if (!was_filled)
		return 0;
	if (s->error.exit != 0) {
		*e = s->error;
		return e->exit;
	}
	part = (struct encoder_part){.ids = s->tokens.ids,
		.n = s->tokens.n,
		.separators = s->separators,
		.replaced = s->tokens.replaced,
		.largest = s->largest,
		.input = s->part.input,
		.documents = s->part.documents};
	return r->job->take(r->job->of, &part, e);
}

static int feed(struct encoder *r, struct ctl_error *e)
{
	size_t filled = 0;
	int rc = 1;

	for (; rc > 0; filled += rc > 0) {
		struct slot *s = &r->slots[filled % r->n_slots];

		if (empty(r, s, e) != 0)
			return e->exit;
		rc = documents_next(r->job->documents, &s->part, e);
		if (rc > 0)
			set_state(r, s, SLOT_WAITING);
	}
	if (rc < 0)
		return -rc;
	for (size_t i = 0; i < r->n_slots; i++) {
		if (empty(r, &r->slots[(filled + i) % r->n_slots], e) != 0)
			return e->exit;
	}
	return 0;
}

static int start(struct encoder *r, struct ctl_error *e)
{
	while (r->n_threads < r->job->threads) {
		/* fewer threads are enough, but not none */
		if (thread_start(&r->threads[r->n_threads], run, r, "encode") != 0)
			break;
		r->n_threads++;
	}
	return r->n_threads > 0
		? 0
		: ctl_error_set(e, CTL_TRANSPORT, "data prepare: cannot start a thread");
}

static void finish(struct encoder *r)
{
	pthread_mutex_lock(&r->lock);
	r->ended = true;
	pthread_cond_broadcast(&r->filled);
	pthread_mutex_unlock(&r->lock);
	for (int i = 0; i < r->n_threads; i++)
		pthread_join(r->threads[i], NULL);
	for (size_t i = 0; i < r->n_slots; i++) {
		free(r->slots[i].part.bytes);
		free(r->slots[i].tokens.ids);
	}
	pthread_cond_destroy(&r->filled);
	pthread_cond_destroy(&r->done);
	pthread_mutex_destroy(&r->lock);
	free(r->slots);
	free(r->threads);
}

int encoder_run(const struct encoder_job *job, struct ctl_error *e)
{
	/* each thread has a part, and one more waits, while the caller reads and writes */
	struct encoder r = {.job = job, .n_slots = 2 * (size_t)job->threads + 1};
	int exit;

	r.slots = memory_zeroed(r.n_slots, sizeof(*r.slots));
	r.threads = memory_zeroed((size_t)job->threads, sizeof(*r.threads));
	pthread_mutex_init(&r.lock, NULL);
	pthread_cond_init(&r.filled, NULL);
	pthread_cond_init(&r.done, NULL);
	exit = start(&r, e);
	if (exit == 0)
		exit = feed(&r, e);
	finish(&r);
	return exit;
}

int encoder_threads(void)
{
	cpu_set_t cpus;
	int n = 1;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = CPU_COUNT(&cpus);
	return n < ENCODER_THREADS_MAX ? n : ENCODER_THREADS_MAX;
}

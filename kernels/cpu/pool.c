#include "kernels/cpu/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/*
 * The state word: a generation, how many threads may take part, whether the run is closed to new
 * ones, and how many helpers are inside. One word, so that entering and closing cannot race.
 */
#define STATE_INSIDE        UINT64_C(0xffff)
#define STATE_CLOSED        (UINT64_C(1) << 16)
#define STATE_THREADS(w)    ((int)((w) >> 17 & 0x7fff))
#define STATE_GENERATION(w) ((uint32_t)((w) >> 32))

enum { POOL_THREADS_MAX = 1024, SPIN_PAUSES = 128, SPIN_YIELDS = 16, SCRATCH_ALIGN = 64 };

struct scratch {
	void *memory;
	size_t bytes;
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index; /* 1.. ; the caller is 0 */
};

struct pool {
	int capacity;
	int threads;
	struct worker *workers;  /* capacity, [0] unused */
	struct scratch *scratch; /* capacity */
	struct scratch shared;
	int64_t grown;

	pool_fn *fn;
	void *arg;
	int64_t n_chunks;
	_Alignas(64) atomic_int_least64_t next;
	_Alignas(64) atomic_uint_least64_t state;
	atomic_int sleepers;
	atomic_bool caller_sleeps;
	atomic_bool stop;

	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t done;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int scratch_reserve(struct scratch *s, size_t bytes)
{
	void *memory;
	size_t rounded;

	if (bytes <= s->bytes)
		return 0;
	if (bytes > SIZE_MAX - SCRATCH_ALIGN)
		return -ENOMEM;
	rounded = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
	memory = aligned_alloc(SCRATCH_ALIGN, rounded);
	if (!memory)
		return -ENOMEM;
	free(s->memory);
	s->memory = memory;
	s->bytes = rounded;
	return 0;
}

static void run_chunks(struct pool *pool, void *scratch)
{
	int64_t chunk;

	while ((chunk = atomic_fetch_add(&pool->next, 1)) < pool->n_chunks)
		pool->fn(pool->arg, chunk, scratch);
}

static bool is_news(struct pool *pool, uint64_t word, uint32_t seen)
{
	return STATE_GENERATION(word) != seen || atomic_load(&pool->stop);
}

/* Returns a state word with a generation other than seen's (or any once the pool stops). */
static uint64_t wait_for_news(struct pool *pool, uint32_t seen)
{
	uint64_t word;

	for (int i = 0; i < SPIN_YIELDS; i++) {
		for (int j = 0; j < SPIN_PAUSES; j++) {
			word = atomic_load(&pool->state);
			if (is_news(pool, word, seen))
				return word;
			pause_briefly();
		}
		sched_yield();
	}
	pthread_mutex_lock(&pool->lock);
	atomic_fetch_add(&pool->sleepers, 1);
	while (word = atomic_load(&pool->state), !is_news(pool, word, seen))
		pthread_cond_wait(&pool->work, &pool->lock);
	atomic_fetch_sub(&pool->sleepers, 1);
	pthread_mutex_unlock(&pool->lock);
	return word;
}

/* Enters the run of this word unless it is already closed. */
static bool enter(struct pool *pool, uint64_t word)
{
	uint32_t generation = STATE_GENERATION(word);

	while (STATE_GENERATION(word) == generation && !(word & STATE_CLOSED)) {
		if (atomic_compare_exchange_weak(&pool->state, &word, word + 1))
			return true;
	}
	return false;
}

static void leave(struct pool *pool)
{
	uint64_t word = atomic_fetch_sub(&pool->state, 1) - 1;

	if ((word & STATE_INSIDE) || !(word & STATE_CLOSED) || !atomic_load(&pool->caller_sleeps))
		return;
	pthread_mutex_lock(&pool->lock);
	pthread_cond_signal(&pool->done);
	pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *pool = w->pool;
	uint32_t seen = 0;

	for (;;) {
		uint64_t word = wait_for_news(pool, seen);

		if (atomic_load(&pool->stop))
			return NULL;
		seen = STATE_GENERATION(word);
		if (w->index < STATE_THREADS(word) && enter(pool, word)) {
			run_chunks(pool, pool->scratch[w->index].memory);
			leave(pool);
		}
	}
}

static void stop_workers(struct pool *pool, int started)
{
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->stop, true);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 1; i < started; i++)
		pthread_join(pool->workers[i].thread, NULL);
}

/* The main thread handles signals: the workers start with all of them blocked. */
static int start_workers(struct pool *pool)
{
	sigset_t all, before;
	int rc = 0, i;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (i = 1; i < pool->capacity && rc == 0; i++) {
		pool->workers[i].pool = pool;
		pool->workers[i].index = i;
		rc = pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]);
		if (rc == 0)
			pthread_setname_np(pool->workers[i].thread, "compute");
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0)
		stop_workers(pool, i - 1);
	return -rc;
}

int pool_create(int threads, struct pool **out)
{
	struct pool *pool;
	int rc;

	if (threads < 1 || threads > POOL_THREADS_MAX)
		return -EINVAL;
	pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
	if (!pool)
		return -ENOMEM;
	*pool = (struct pool){.capacity = threads, .threads = threads};
	pool->workers = calloc((size_t)threads, sizeof *pool->workers);
	pool->scratch = calloc((size_t)threads, sizeof *pool->scratch);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->done, NULL);
	rc = pool->workers && pool->scratch ? start_workers(pool) : -ENOMEM;
	if (rc != 0) {
		pool->capacity = 0;
		pool_destroy(pool);
		return rc;
	}
	*out = pool;
	return 0;
}

void pool_destroy(struct pool *pool)
{
	if (!pool)
		return;
	stop_workers(pool, pool->capacity);
	for (int i = 0; i < pool->capacity; i++)
		free(pool->scratch[i].memory);
	free(pool->shared.memory);
	free(pool->scratch);
	free(pool->workers);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

int pool_threads(const struct pool *pool)
{
	return pool->threads;
}

void pool_set_threads(struct pool *pool, int threads)
{
	if (threads < 1)
		threads = 1;
	pool->threads = threads < pool->capacity ? threads : pool->capacity;
}

static int take(struct scratch *s, size_t bytes)
{
	if (bytes > 0)
		return scratch_reserve(s, bytes);
	free(s->memory);
	*s = (struct scratch){.memory = NULL};
	return 0;
}

int pool_take_scratch(struct pool *pool, size_t bytes_per_thread)
{
	int n = bytes_per_thread > 0 ? pool->threads : pool->capacity, rc = 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = take(&pool->scratch[i], bytes_per_thread);
	return rc;
}

int pool_take_shared(struct pool *pool, size_t bytes)
{
	return take(&pool->shared, bytes);
}

int64_t pool_grown(const struct pool *pool)
{
	return pool->grown;
}

int pool_reserve(struct pool *pool, size_t bytes)
{
	for (int i = 0; i < pool->threads; i++) {
		int rc;

		pool->grown += bytes > pool->scratch[i].bytes;
		rc = scratch_reserve(&pool->scratch[i], bytes);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void *pool_shared(struct pool *pool, size_t bytes)
{
	pool->grown += bytes > pool->shared.bytes;
	return scratch_reserve(&pool->shared, bytes) < 0 ? NULL : pool->shared.memory;
}

static void open_run(struct pool *pool)
{
	uint64_t generation = STATE_GENERATION(atomic_load(&pool->state)) + UINT64_C(1);

	atomic_store(&pool->state, generation << 32 | (uint64_t)pool->threads << 17);
	if (atomic_load(&pool->sleepers) == 0)
		return;
	pthread_mutex_lock(&pool->lock);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

static void close_run(struct pool *pool)
{
	uint64_t word = atomic_fetch_or(&pool->state, STATE_CLOSED);

	for (int i = 0; (word & STATE_INSIDE) && i < SPIN_YIELDS * SPIN_PAUSES; i++) {
		pause_briefly();
		if (i % SPIN_PAUSES == SPIN_PAUSES - 1)
			sched_yield();
		word = atomic_load(&pool->state);
	}
	if (!(word & STATE_INSIDE))
		return;
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->caller_sleeps, true);
	while (atomic_load(&pool->state) & STATE_INSIDE)
		pthread_cond_wait(&pool->done, &pool->lock);
	atomic_store(&pool->caller_sleeps, false);
	pthread_mutex_unlock(&pool->lock);
}

void pool_run(struct pool *pool, int64_t n_chunks, pool_fn *fn, void *arg)
{
	if (n_chunks <= 1 || pool->threads == 1) {
		for (int64_t i = 0; i < n_chunks; i++)
			fn(arg, i, pool->scratch[0].memory);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	pool->n_chunks = n_chunks;
	atomic_store(&pool->next, 0);
	open_run(pool);
	run_chunks(pool, pool->scratch[0].memory);
	close_run(pool);
}

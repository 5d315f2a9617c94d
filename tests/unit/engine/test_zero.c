/*
 * The order in which gradients and parameters travel, on streams that only keep account: an event
 * carries what its stream knows, a wait passes it on. No bucket may leave before its gradients are
 * final, no parameter be read before it has arrived, and each travels once.
 */
#include "engine/train/zero.h"
#include "tests/unit/test.h"

enum { ELEMS_MAX = 1 << 14, ELEM_BYTES = 4 };

/* ---- streams, events and collectives that keep account ---- */

struct knowledge {
	int64_t final;    /* gradients [0, final) are final */
	bool updated;     /* the optimizer has run */
	int64_t reduced;  /* elements reduced so far */
	int64_t gathered; /* parameters [gathered, end) have arrived */
};

struct k_stream {
	struct knowledge knows;
	int waits;
};

struct k_event {
	struct knowledge carries;
	bool recorded;
};

static struct k_stream compute, comm;
static char params[ELEMS_MAX * ELEM_BYTES], grads[ELEMS_MAX * ELEM_BYTES];
static int times_reduced[ELEMS_MAX], times_gathered[ELEMS_MAX];
static int64_t arena_elems;
static bool scattered, all_reduced;

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int k_event_create(struct k_context *ctx, struct k_event **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -1;
}

void k_event_destroy(struct k_event *e)
{
	free(e);
}

void k_event_record(struct k_event *e, struct k_stream *s)
{
	e->carries = s->knows;
	e->recorded = true;
}

void k_stream_wait(struct k_stream *s, struct k_event *e)
{
	assert_true(e->recorded);
	s->knows.final = most(s->knows.final, e->carries.final);
	s->knows.updated = s->knows.updated || e->carries.updated;
	s->knows.reduced = most(s->knows.reduced, e->carries.reduced);
	if (e->carries.gathered < s->knows.gathered)
		s->knows.gathered = e->carries.gathered;
	s->waits++;
}

int64_t k_event_elapsed_ns(const struct k_event *from, const struct k_event *to)
{
	return 1;
}

/* Collectives are issued in ranges that name their bucket, one at a time. */
static char range[64];

void k_range_begin(const char *name)
{
	assert_string_equal(range, "");
	assert_non_null(strstr(name, " bucket "));
	snprintf(range, sizeof(range), "%s", name);
}

void k_range_end(void)
{
	assert_string_not_equal(range, "");
	range[0] = '\0';
}

size_t k_elem_bytes(const struct k_context *ctx)
{
	return ELEM_BYTES;
}

static void count_reduced(const void *buf, int64_t n, const struct k_stream *s)
{
	int64_t first = ((const char *)buf - grads) / ELEM_BYTES;

	assert_ptr_equal(s, &comm);
	assert_memory_equal(range, "train/reduce", 12);
	assert_true(n > 0 && first + n <= arena_elems);
	if (comm.knows.final < first + n)
		fail_msg("[%d, %d) leaves when [0, %d) is final", (int)first, (int)(first + n),
			(int)comm.knows.final);
	for (int64_t i = first; i < first + n; i++)
		times_reduced[i]++;
	comm.knows.reduced += n;
}

void collectives_reduce_scatter(
	struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	count_reduced(buf, n, s);
	scattered = true;
}

void collectives_all_reduce(struct collectives_group *g, void *buf, int64_t n,
	enum collectives_type type, enum collectives_op op, struct k_stream *s)
{
	if (type != COLLECTIVES_ELEM)
		return;
	count_reduced(buf, n, s);
	all_reduced = true;
}

void collectives_begin(struct collectives_group *g)
{
}

void collectives_end(struct collectives_group *g)
{
}

void collectives_all_gather(struct collectives_group *g, void *buf, int64_t n, struct k_stream *s)
{
	int64_t first = ((const char *)buf - params) / ELEM_BYTES;

	assert_ptr_equal(s, &comm);
	assert_true(comm.knows.updated);
	for (int64_t i = first; i < first + n; i++)
		times_gathered[i]++;
	if (first < comm.knows.gathered)
		comm.knows.gathered = first;
}

/* ---- a step over them ---- */

struct shape {
	int world;
	int64_t parts[5]; /* ends of what backward completes: head, blocks, embeddings */
	int64_t reduce, gather;
	int64_t stage;
	bool overlap, reduce_scatter, deferred, flush;
};

static int64_t n_parts(void)
{
	return (int64_t)(sizeof(((struct shape *)0)->parts) / sizeof(int64_t));
}

static void begin(struct zero *z, struct timeline *time, struct plan *plan, const struct shape *s)
{
	struct zero_segment segment = {
		.group = (struct collectives_group *)(void *)&compute, /* never looked into */
		.plan = plan,
		.stage = s->stage,
		.reduce_scatter = s->reduce_scatter,
		.overlap = s->overlap,
		.deferred = s->deferred,
		.params = params,
		.grads = grads,
		.n_layer = n_parts() - 2,
	};
	char error[256];

	memset(&compute, 0, sizeof(compute));
	memset(&comm, 0, sizeof(comm));
	memset(times_reduced, 0, sizeof(times_reduced));
	memset(times_gathered, 0, sizeof(times_gathered));
	scattered = all_reduced = false;
	if (plan_make(plan, s->parts[n_parts() - 1], s->world, s->reduce, s->gather, error,
		    sizeof(error)))
		fail_msg("%s", error);
	arena_elems = plan->arena_elems;
	assert_true(arena_elems <= ELEMS_MAX);
	compute.knows.gathered = comm.knows.gathered = arena_elems;
	assert_int_equal(timeline_init(time, NULL, &compute), 0);
	assert_int_equal(timeline_reserve(time, zero_marks(segment.n_layer) + 2), 0);
	zero_init(z, NULL, &compute, &comm, time);
	assert_int_equal(zero_begin(z, &segment), 0);
}

static void backward(struct zero *z, const struct shape *s)
{
	struct model_hooks hooks = zero_backward_hooks(z);

	assert_true((hooks.done != NULL) == s->overlap);
	for (int64_t i = 0; i < n_parts(); i++) {
		compute.knows.final = s->parts[i];
		if (i == n_parts() - 1)
			compute.knows.final = arena_elems; /* padding is not written */
		if (hooks.done)
			hooks.done(hooks.arg, s->parts[i], &compute);
	}
	zero_reduce_finish(z);
	assert_int_equal(compute.knows.reduced, arena_elems);
	for (int64_t i = 0; i < arena_elems; i++)
		assert_int_equal(times_reduced[i], 1);
	assert_true(scattered == (s->stage == 1 && s->reduce_scatter));
	assert_true(all_reduced == !scattered);
}

static void forward(struct zero *z, const struct shape *s, const struct plan *plan)
{
	struct model_hooks hooks = zero_forward_hooks(z);
	int waits = compute.waits;

	assert_non_null(hooks.need);
	for (int64_t i = n_parts() - 1; i >= 0; i--) {
		int64_t first = i ? s->parts[i - 1] : 0, bucket = first / plan->gather_elems;

		hooks.need(hooks.arg, first, s->parts[i] - first);
		if (s->stage == 0)
			continue;
		assert_true(compute.knows.gathered <= first);
		/* and for no more than it has to */
		if (s->overlap)
			assert_int_equal(
				compute.knows.gathered, plan_gather_bucket(plan, bucket).first);
	}
	assert_true(s->overlap || compute.waits == waits);
	for (int64_t i = 0; i < arena_elems; i++)
		assert_int_equal(times_gathered[i], s->stage == 1);
}

static void check(const struct shape *s)
{
	struct timeline time;
	struct plan plan;
	struct zero z;

	begin(&z, &time, &plan, s);
	backward(&z, s);
	compute.knows.updated = true;
	zero_gather(&z);
	if (s->deferred) {
		for (int64_t i = 0; i < arena_elems; i++)
			assert_int_equal(times_gathered[i], 0);
		if (s->flush)
			zero_flush(&z);
		else
			zero_step_begin(&z);
		zero_flush(&z); /* nothing is owed any more */
	}
	forward(&z, s, &plan);
	zero_drain(&z);
	if (s->stage == 1)
		assert_int_equal(compute.knows.gathered, 0);
	zero_finish(&z);
	timeline_finish(&time);
}

static void nothing_travels_too_early_or_twice(void **state)
{
	static const int64_t buckets[] = {1, 512, 1000, 1537, 3000, 5000, 1 << 20};
	struct shape s = {.parts = {700, 1536, 3001, 4096, 6000}};

	for (s.world = 2; s.world <= 4; s.world++)
		for (size_t r = 0; r < 7; r++)
			for (size_t g = r; g < 7; g++)
				for (int way = 0; way < 32; way++) {
					s.reduce = buckets[r];
					s.gather = buckets[g];
					s.stage = way & 1;
					s.overlap = way & 2;
					s.reduce_scatter = way & 4;
					s.deferred = way & 8;
					s.flush = way & 16;
					check(&s);
				}
}

/* With overlap the first buckets are gone before backward is through. */
static void buckets_leave_during_backward(void **state)
{
	struct shape s = {.world = 2,
		.parts = {700, 1536, 3001, 4096, 6000},
		.reduce = 1024,
		.gather = 1024,
		.stage = 1,
		.reduce_scatter = true,
		.overlap = true};
	struct model_hooks hooks;
	struct timeline time;
	struct plan plan;
	struct zero z;

	begin(&z, &time, &plan, &s);
	hooks = zero_backward_hooks(&z);
	for (int64_t i = 0; i < n_parts() - 1; i++) {
		compute.knows.final = s.parts[i];
		hooks.done(hooks.arg, s.parts[i], &compute);
		assert_int_equal(comm.knows.reduced, s.parts[i] / 1024 * 1024);
		assert_int_equal(compute.waits, 0);
	}
	zero_finish(&z);
	timeline_finish(&time);
}

static void alone_nothing_travels(void **state)
{
	struct shape s = {.world = 1,
		.parts = {700, 1536, 3001, 4096, 6000},
		.reduce = 1024,
		.gather = 1024,
		.stage = 1,
		.overlap = true};
	struct timeline time;
	struct plan plan;
	struct zero z;

	begin(&z, &time, &plan, &s);
	z.group = NULL;
	assert_null(zero_backward_hooks(&z).done);
	assert_null(zero_forward_hooks(&z).need);
	zero_reduce_finish(&z);
	zero_gather(&z);
	zero_drain(&z);
	assert_int_equal(compute.waits + comm.waits, 0);
	assert_int_equal(zero_owned_ranges(&plan, 1), 1);
	assert_int_equal(zero_owned_elems(&plan, 1, 0), plan.arena_elems);
	zero_finish(&z);
	timeline_finish(&time);
}

TEST_MAIN(cmocka_unit_test(nothing_travels_too_early_or_twice),
	cmocka_unit_test(buckets_leave_during_backward), cmocka_unit_test(alone_nothing_travels))

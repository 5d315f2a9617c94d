/* Which collective is late; events, and what has run of a stream, are the test's. */
#include <time.h>

#include "engine/comm/nccl_deadline.h"
#include "tests/unit/test.h"

#define MS_NS INT64_C(1000000)

/* It has happened once the stream has run so many records. */
struct k_event {
	int64_t at;
};
struct k_stream {
	int64_t recorded, ran;
	bool capturing;
};

static struct k_stream stream;
static int events, events_most;

int k_event_create(struct k_context *ctx, struct k_event **out)
{
	if (events == events_most)
		return -ENOMEM;
	events++;
	*out = calloc(1, sizeof(**out));
	assert_non_null(*out);
	return 0;
}

void k_event_destroy(struct k_event *e)
{
	events -= e != NULL;
	free(e);
}

void k_event_record(struct k_event *e, struct k_stream *s)
{
	e->at = ++s->recorded;
}

int k_event_sync(struct k_event *e, int64_t timeout_ns)
{
	return e->at <= stream.ran ? 0 : -ETIMEDOUT;
}

bool k_graph_capturing(struct k_stream *s)
{
	return s->capturing;
}

static int set_up(void **state)
{
	struct nccl_deadline *d = malloc(sizeof(*d));

	stream = (struct k_stream){0};
	events = 0;
	events_most = INT32_MAX;
	*state = d;
	return nccl_deadline_init(d, NULL);
}

static int tear_down(void **state)
{
	nccl_deadline_finish(*state);
	free(*state);
	return events;
}

static void issue(struct nccl_deadline *d, const char *name, int64_t limit_ns)
{
	nccl_deadline_end(d, nccl_deadline_begin(d, name, limit_ns, &stream), &stream);
}

static void nap(int64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void late_from_where_it_began(void **state)
{
	struct nccl_deadline *d = *state;

	issue(d, "all-gather", 20 * MS_NS);
	nap(30 * MS_NS);
	assert_null(nccl_deadline_late(d)); /* it waits for what is computed before it */
	stream.ran = 1;
	assert_null(nccl_deadline_late(d));
	nap(30 * MS_NS);
	assert_string_equal(nccl_deadline_late(d)->name, "all-gather");
	stream.ran = 2;
	assert_null(nccl_deadline_late(d));
}

static void each_by_its_own_limit(void **state)
{
	struct nccl_deadline *d = *state;

	issue(d, "a captured step", INT64_MAX);
	issue(d, "all-reduce", 20 * MS_NS);
	stream.ran = 1;
	assert_null(nccl_deadline_late(d));
	nap(30 * MS_NS);
	assert_null(nccl_deadline_late(d));
	stream.ran = 3;
	assert_null(nccl_deadline_late(d));
	nap(30 * MS_NS);
	assert_string_equal(nccl_deadline_late(d)->name, "all-reduce");
	assert_int_equal(nccl_deadline_late(d)->limit_ns, 20 * MS_NS);
}

/* All of a step of many buckets: what is computed between two of them is no waiting. */
static void as_many_as_a_step_has(void **state)
{
	struct nccl_deadline *d = *state;

	for (int i = 0; i < COLLECTIVES_STEP_MAX - 64; i++)
		issue(d, "reduce-scatter", 20 * MS_NS);
	for (stream.ran = 2; stream.ran < stream.recorded; stream.ran += 2)
		assert_null(nccl_deadline_late(d));
	nap(30 * MS_NS);
	stream.ran = stream.recorded - 2;
	assert_null(nccl_deadline_late(d));
	stream.ran++;
	assert_null(nccl_deadline_late(d));
	nap(30 * MS_NS);
	assert_non_null(nccl_deadline_late(d));
}

static void events_are_made_when_needed(void **state)
{
	struct nccl_deadline *d = *state;

	assert_int_equal(events, 2);
	for (int i = 0; i < 3; i++)
		issue(d, "broadcast", MS_NS);
	assert_int_equal(events, 6);
	events_most = 6;
	assert_null(nccl_deadline_begin(d, "broadcast", MS_NS, &stream));
	nccl_deadline_end(d, NULL, &stream);
	stream.ran = stream.recorded;
	assert_null(nccl_deadline_late(d));
	stream.capturing = true;
	assert_null(nccl_deadline_begin(d, "broadcast", MS_NS, &stream));
}

TEST_MAIN(cmocka_unit_test_setup_teardown(late_from_where_it_began, set_up, tear_down),
	cmocka_unit_test_setup_teardown(each_by_its_own_limit, set_up, tear_down),
	cmocka_unit_test_setup_teardown(as_many_as_a_step_has, set_up, tear_down),
	cmocka_unit_test_setup_teardown(events_are_made_when_needed, set_up, tear_down))

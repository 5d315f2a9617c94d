#include "daemon/runs/queue.h"
#include "daemon/store/run.h"
#include "tests/unit/test.h"

/* Row: from; column: to. queued starting running finishing done failed cancelled interrupted */
static const char *const allowed[RUN_STATES] = {
	[RUN_QUEUED] = ".x...xx.",
	[RUN_STARTING] = "..x..xxx",
	[RUN_RUNNING] = "...x.xxx",
	[RUN_FINISHING] = "....xx.x",
	[RUN_DONE] = "........",
	[RUN_FAILED] = "........",
	[RUN_CANCELLED] = "........",
	[RUN_INTERRUPTED] = "x.......",
};

static void test_reason(void **state)
{
	static const char *const said[][2] = {{"cancelled: asked for", "asked for"},
		{"cancelled", "cancelled"}, {"cancelled by a user", "cancelled by a user"},
		{"timeout: 3 s", "timeout: 3 s"}, {"", ""}};
	struct run run = {.state = RUN_CANCELLED};

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		strcpy(run.reason, said[i][0]);
		assert_string_equal(run_reason(&run), said[i][1]);
	}
}

static void test_every_pair(void **state)
{
	for (int from = 0; from < RUN_STATES; from++) {
		for (int to = 0; to < RUN_STATES; to++) {
			struct run run = {.state = (enum run_state)from, .reason = "before"};
			struct run before = run;
			bool may = allowed[from][to] == 'x';
			int rc = run_transition(&run, (enum run_state)to, "because", 1000);

			assert_int_equal(run_may((enum run_state)from, (enum run_state)to), may);
			if (may) {
				assert_int_equal(rc, 0);
				assert_int_equal(run.state, to);
				assert_string_equal(run.reason, "because");
			} else {
				assert_int_equal(rc, -EINVAL);
				assert_memory_equal(&run, &before, sizeof(run));
			}
		}
	}
}

static void test_times(void **state)
{
	struct run run = {.state = RUN_QUEUED, .attempt = 1};

	assert_int_equal(run_transition(&run, RUN_STARTING, NULL, 10), 0);
	assert_int_equal(run.started_ns, 10);
	assert_int_equal(run.ended_ns, 0);
	assert_int_equal(run_transition(&run, RUN_RUNNING, NULL, 20), 0);
	assert_int_equal(run.started_ns, 10);
	run.segments_done = 3;
	assert_int_equal(run_transition(&run, RUN_INTERRUPTED, "daemon_restart", 30), 0);
	assert_int_equal(run.ended_ns, 30);
	assert_int_equal(run_transition(&run, RUN_QUEUED, NULL, 40), 0);
	assert_int_equal(run.attempt, 2);
	assert_int_equal(run.started_ns, 0);
	assert_int_equal(run.ended_ns, 0);
	assert_int_equal(run.segments_done, 0);
	assert_string_equal(run.reason, "");
}

static void test_names(void **state)
{
	enum run_state s = RUN_DONE;

	for (int i = 0; i < RUN_STATES; i++) {
		assert_int_equal(run_state_parse(run_state_name((enum run_state)i), &s), 0);
		assert_int_equal(s, i);
		assert_int_equal(run_state_ended(s), i >= RUN_DONE);
	}
	assert_int_equal(run_state_parse("Queued", &s), -EINVAL);
}

static void test_dir(void **state)
{
	struct run run = {.id = 17, .name = "a.b", .attempt = 1};
	char dir[64], small[8];

	assert_int_equal(run_dir(&run, "/s", dir, sizeof(dir)), 0);
	assert_string_equal(dir, "/s/runs/17-a.b");
	run.attempt = 3;
	assert_int_equal(run_dir(&run, "/s", dir, sizeof(dir)), 0);
	assert_string_equal(dir, "/s/runs/17-a.b.3");
	assert_int_equal(run_dir(&run, "/s", small, sizeof(small)), -ENAMETOOLONG);
}

static struct run *new_run(struct queue *q, int64_t id)
{
	struct run *run = calloc(1, sizeof(*run));

	run->id = id;
	queue_add(q, run);
	return run;
}

static struct run *new_run_of(struct queue *q, int64_t id, int64_t gpus, int64_t priority)
{
	struct run *run = calloc(1, sizeof(*run));

	*run = (struct run){.id = id, .gpus = gpus, .priority = priority};
	queue_add(q, run);
	return run;
}

static void test_queue_of_fewer_ranks(void **state)
{
	struct queue *q = queue_create(1);
	struct run *wide = new_run_of(q, 1, 2, 10), *narrow;

	assert_null(queue_head(q));
	assert_false(queue_fits(q, wide));
	assert_ptr_equal(queue_next(q, NULL), wide);
	narrow = new_run_of(q, 2, 1, -10);
	assert_ptr_equal(queue_head(q), narrow);
	assert_ptr_equal(queue_next(q, narrow), wide);
	queue_set_priority(q, narrow, -100);
	assert_ptr_equal(queue_head(q), narrow);
	queue_destroy(q);
}

static void test_queue(void **state)
{
	struct queue *q = queue_create(1);
	struct run *two, *three, *one;

	assert_null(queue_next(q, NULL));
	two = new_run(q, 2);
	three = new_run(q, 3);
	one = new_run(q, 1);
	assert_ptr_equal(queue_next(q, NULL), one);
	assert_ptr_equal(queue_next(q, one), two);
	assert_int_equal(queue_length(q), 3);
	one->state = RUN_RUNNING;
	assert_ptr_equal(queue_next(q, NULL), two);
	assert_int_equal(queue_length(q), 2);
	assert_ptr_equal(queue_find(q, 1), one);
	queue_remove(q, two);
	free(two);
	assert_null(queue_find(q, 2));
	assert_ptr_equal(queue_next(q, NULL), three);
	queue_destroy(q);
	queue_destroy(NULL);
}

/* A reason may be cut within a character; of a run whose reason is no UTF-8 there is no JSON. */
static void test_reason_that_is_cut(void **state)
{
	struct run run = {.id = 1, .name = "x", .state = RUN_QUEUED, .attempt = 1};
	char reason[2 * RUN_REASON_BYTES + 2] = "x";
	json_t *json;

	for (size_t i = 0; i < RUN_REASON_BYTES; i++)
		strcat(reason, "\xc3\xa4");
	assert_int_equal(run_transition(&run, RUN_FAILED, reason, 5), 0);
	assert_int_equal(strlen(run.reason), RUN_REASON_BYTES - 1);
	json = run_json(&run, "/state");
	assert_non_null(json);
	assert_string_equal(json_string_value(json_object_get(json, "reason")), run.reason);
	json_decref(json);
	assert_int_equal(run.reason[RUN_REASON_BYTES - 2], '\xa4');

	run = (struct run){.id = 1, .name = "x", .state = RUN_QUEUED, .attempt = 1};
	assert_int_equal(run_transition(&run, RUN_FAILED, reason + 1, 5), 0);
	assert_int_equal(run.reason[RUN_REASON_BYTES - 2], '?');
	json = run_json(&run, "/state");
	assert_non_null(json);
	json_decref(json);
}

/* Names of the queued runs in their order, one digit each. */
static void assert_order(const struct queue *q, const char *expected)
{
	char order[16] = "";
	size_t n = 0;

	for (struct run *run = queue_next(q, NULL); run != NULL; run = queue_next(q, run))
		order[n++] = (char)('0' + run->id);
	assert_string_equal(order, expected);
}

static void test_priorities(void **state)
{
	struct queue *q = queue_create(1);
	struct run *runs[6];

	for (int64_t id = 1; id <= 5; id++)
		runs[id] = new_run(q, id);
	assert_order(q, "12345");
	queue_set_priority(q, runs[4], 7);
	queue_set_priority(q, runs[2], -7);
	assert_order(q, "41352");
	queue_set_priority(q, runs[5], 7);
	assert_order(q, "45132");
	queue_set_priority(q, runs[4], 0);
	assert_order(q, "51342");
	queue_set_priority(q, runs[1], 0); /* as it was: it keeps its place */
	assert_order(q, "51342");
	runs[5]->state = RUN_RUNNING;
	assert_order(q, "1342");
	queue_destroy(q);
}

TEST_MAIN(cmocka_unit_test(test_every_pair), cmocka_unit_test(test_reason),
	cmocka_unit_test(test_times), cmocka_unit_test(test_names), cmocka_unit_test(test_dir),
	cmocka_unit_test(test_queue), cmocka_unit_test(test_queue_of_fewer_ranks),
	cmocka_unit_test(test_reason_that_is_cut), cmocka_unit_test(test_priorities))

/*
 * Ranks go by rank 0's choices, an engine that is started again by those it kept; kernels and
 * collectives are the test's own.
 */
#include <time.h>

#include "engine/train/tuned.h"
#include "engine/train/tuning.h"
#include "tests/unit/test.h"

enum { MAX = 8 };

struct k_context {
	const char *gpu;
	struct k_choice choices[MAX];
	int64_t n;
};

/* A group of two; the other rank's choices are those of `peer`. */
struct collectives_group {
	const struct k_context *peer;
	int rank;
	int answers; /* gathers that come to an end */
	int asked;
	void *out[2];      /* of the gathers; the first lies in what holds all the rest */
	size_t late_bytes; /* of the one that does not */
};

struct k_stream {
	const struct collectives_group *group;
	bool at_rest; /* even after a gather that fails */
};

struct collectives {
	const struct collectives_group *group;
};

void k_context_info(const struct k_context *ctx, struct k_device_info *out)
{
	*out = (struct k_device_info){.choices = ctx->gpu};
}

int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max)
{
	if (max > 0)
		memcpy(out, ctx->choices, (size_t)(max < ctx->n ? max : ctx->n) * sizeof(*out));
	return ctx->n;
}

static struct k_choice *find(struct k_context *ctx, const struct k_product *product)
{
	int64_t i = 0;

	while (i < ctx->n && memcmp(&ctx->choices[i].product, product, sizeof(*product)) != 0)
		i++;
	assert_true(i < MAX);
	return &ctx->choices[i];
}

int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n)
{
	int64_t changed = 0;

	for (int64_t i = 0; i < n; i++) {
		struct k_choice *at = find(ctx, &choices[i].product);

		if (at == &ctx->choices[ctx->n])
			ctx->n++;
		else if (memcmp(at, &choices[i], sizeof(*at)) != 0)
			changed++;
		*at = choices[i];
	}
	return changed;
}

int k_stream_sync(struct k_stream *s, int64_t timeout_ns)
{
	if (s->at_rest || s->group->asked <= s->group->answers)
		return 0;
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return -ETIMEDOUT;
}

int k_event_sync(struct k_event *e, int64_t timeout_ns)
{
	return -EINVAL;
}

const char *collectives_error(const struct collectives *c)
{
	return c->group->asked > c->group->answers ? "rank 1: no message" : NULL;
}

int collectives_world(const struct collectives_group *g)
{
	return 2;
}

/* The first call of each pair asks for counts, the second for choices. */
void collectives_gather_all(
	struct collectives_group *g, void *out, const void *in, size_t bytes, struct k_stream *s)
{
	char *own = (char *)out + (size_t)g->rank * bytes;
	char *other = (char *)out + (size_t)(1 - g->rank) * bytes;

	g->out[g->asked++] = out;
	if (g->asked > g->answers) {
		memset(out, 0xf0, 2 * bytes);
		g->late_bytes = 2 * bytes;
		return;
	}
	memcpy(own, in, bytes);
	if (bytes == sizeof(int64_t))
		memcpy(other, &g->peer->n, bytes);
	else
		k_choices(g->peer, (struct k_choice *)(void *)other,
			(int64_t)(bytes / sizeof(struct k_choice)));
}

static void choose(struct k_context *ctx, int64_t m, uint64_t algorithm, int64_t timed)
{
	struct k_choice *c = &ctx->choices[ctx->n++];

	memset(c, 0, sizeof(*c));
	c->product.m = m;
	c->algorithm[0] = algorithm;
	c->picoseconds = 1000;
	c->timed = timed;
}

static struct spec_config some_config(void)
{
	return (struct spec_config){.model = {.n_layer = 2, .n_embd = 128}, .micro_batch = 2};
}

static void cpu_makes_none(void **state)
{
	struct k_context ctx = {0};
	struct spec_config c = some_config();
	int64_t changed = 7;
	struct tuned t;

	tuned_init(&t, &ctx, "/nowhere");
	assert_string_equal(t.note, "");
	assert_true(tuned_has(&t, &c));
	assert_int_equal(tuned_share(&t, NULL, 0, &changed), 0);
	assert_string_equal(t.sha256, "");
}

static void shapes_are_remembered(void **state)
{
	struct k_context ctx = {.gpu = "GPU 1"};
	struct spec_config c = some_config(), other = c;
	struct tuned t;

	tuned_init(&t, &ctx, NULL);
	assert_false(tuned_has(&t, &c));
	tuned_add(&t, &c);
	assert_true(tuned_has(&t, &c));
	other.reduce_bucket_elems = 5; /* nothing that a product sees */
	assert_true(tuned_has(&t, &other));
	other.seq_len = 7;
	assert_false(tuned_has(&t, &other));
	for (int i = 0; i < TUNED_SHAPES; i++) {
		other.seq_len = 100 + i;
		tuned_add(&t, &other);
	}
	assert_false(tuned_has(&t, &c)); /* the oldest is forgotten, and only tried again */
	assert_true(tuned_has(&t, &other));
}

static void started_again(void **state)
{
	struct k_context first = {.gpu = "GPU 1"}, second = {.gpu = "GPU 1"};
	struct tuned t, u;
	int64_t changed = -1;

	tuned_init(&t, &first, *state);
	assert_string_equal(t.note, "");
	choose(&first, 5, 50, 1);
	choose(&first, 4, 40, 1);
	assert_int_equal(tuned_share(&t, NULL, 0, &changed), 0);
	assert_int_equal(changed, 0);
	assert_string_equal(t.note, "");
	assert_int_equal(strlen(t.sha256), 64);
	assert_string_equal(t.sha256, t.file_sha256);
	assert_int_equal(tuned_missed(&t), 0);
	assert_int_equal(t.guessed, 0);
	choose(&first, 3, 30, 1);
	assert_int_equal(tuned_missed(&t), 1);

	tuned_init(&u, &second, *state);
	assert_string_equal(u.note, "");
	assert_int_equal(second.n, 2);
	assert_int_equal(find(&second, &first.choices[0].product)->algorithm[0], 50);
	assert_string_equal(u.file_sha256, t.sha256);
	assert_int_equal(tuned_share(&u, NULL, 0, &changed), 0);
	assert_string_equal(u.sha256, t.sha256);
}

/* For want of memory an algorithm was guessed: the file says so, the next engine tries again. */
static void guesses_are_not_for_ever(void **state)
{
	struct k_context first = {.gpu = "GPU 1"}, second = {.gpu = "GPU 1"};
	int64_t changed;
	struct tuned t;

	tuned_init(&t, &first, *state);
	choose(&first, 5, 50, 0);
	choose(&first, 4, 40, 1);
	assert_int_equal(tuned_share(&t, NULL, 0, &changed), 0);
	assert_int_equal(t.guessed, 1);
	tuned_init(&t, &second, *state);
	assert_int_equal(second.n, 1);
	assert_int_equal(second.choices[0].algorithm[0], 40);
}

/* One rank's part in a world of two. */
static int share(struct tuned *t, struct collectives_group *group, bool at_rest, int64_t *changed)
{
	struct k_stream comm = {.group = group, .at_rest = at_rest};
	struct collectives c = {.group = group};
	const struct tuned_peers peers = {
		.collectives = &c, .group = group, .comm = &comm, .patience_ns = 20000000};

	return tuned_share(t, &peers, group->rank, changed);
}

static void rank_0_decides(void **state)
{
	struct k_context zero = {.gpu = "GPU 1"}, one = {.gpu = "GPU 1"};
	struct collectives_group of_one = {.peer = &zero, .rank = 1, .answers = 2};
	struct collectives_group of_zero = {.peer = &one, .rank = 0, .answers = 2};
	struct tuned t, u;
	int64_t changed = -1;

	choose(&zero, 5, 50, 1);
	choose(&zero, 4, 40, 1);
	choose(&zero, 3, 30, 1);
	choose(&one, 4, 41, 1);
	choose(&one, 3, 30, 1);
	tuned_init(&t, &zero, *state);
	tuned_init(&u, &one, *state);
	assert_int_equal(share(&u, &of_one, true, &changed), 0);
	assert_int_equal(changed, 1);
	assert_int_equal(access(*state, F_OK), 0);
	assert_string_equal(u.file_sha256, ""); /* rank 0 alone writes */
	assert_int_equal(share(&t, &of_zero, true, &changed), 0);
	assert_int_equal(changed, 0);
	assert_int_equal(one.n, 3);
	assert_int_equal(find(&one, &zero.choices[1].product)->algorithm[0], 40);
	assert_string_equal(t.sha256, u.sha256);
	assert_string_equal(t.file_sha256, t.sha256);
}

/*
 * The first or the second gather fails: no choice is taken, nothing is kept. Where the device does
 * not come to rest its memory stays, for it may still write.
 */
static void a_peer_that_never_answers(void **state)
{
	static struct collectives_group group[2][2]; /* what is left to the device */
	struct k_context zero = {.gpu = "GPU 1"};

	choose(&zero, 5, 50, 1);
	for (int answers = 0; answers < 2; answers++)
		for (int at_rest = 0; at_rest < 2; at_rest++) {
			struct k_context one = {.gpu = "GPU 1"};
			struct collectives_group *g = &group[answers][at_rest];
			int64_t changed = -7;
			struct tuned t;

			*g = (struct collectives_group){
				.peer = &zero, .rank = 1, .answers = answers};
			choose(&one, 5, 51, 1);
			tuned_init(&t, &one, *state);
			assert_int_equal(share(&t, g, at_rest, &changed), -EPIPE);
			assert_int_equal(g->asked, answers + 1);
			assert_int_equal(changed, -7);
			assert_int_equal(one.choices[0].algorithm[0], 51);
			assert_string_equal(t.sha256, "");
			assert_int_equal(tuned_missed(&t), 1);
			if (at_rest)
				memset(g->out, 0, sizeof(g->out));
			else
				memset(g->out[answers], 0, g->late_bytes);
		}
}

static void a_broken_file_is_replaced(void **state)
{
	struct k_context ctx = {.gpu = "GPU 1"};
	char error[512];
	int64_t changed;
	struct tuned t;

	assert_int_equal(tuning_write(*state, "GPU 1", "nonsense", error, sizeof(error)), 0);
	tuned_init(&t, &ctx, *state);
	assert_non_null(strstr(t.note, "gpu-1.tuning"));
	assert_int_equal(ctx.n, 0);
	choose(&ctx, 5, 50, 1);
	assert_int_equal(tuned_share(&t, NULL, 0, &changed), 0);
	assert_string_equal(t.note, "");
	tuned_init(&t, &ctx, *state);
	assert_string_equal(t.note, "");
	assert_int_equal(strlen(t.file_sha256), 64);
}

static void no_place_for_it(void **state)
{
	struct k_context ctx = {.gpu = "GPU 1"};
	int64_t changed;
	struct tuned t;

	tuned_init(&t, &ctx, "/nowhere/at/all");
	assert_string_equal(t.note, "");
	choose(&ctx, 5, 50, 1);
	assert_int_equal(tuned_share(&t, NULL, 0, &changed), 0);
	assert_non_null(strstr(t.note, "/nowhere/at/all"));
	assert_int_equal(strlen(t.sha256), 64);
}

TEST_MAIN(cmocka_unit_test(cpu_makes_none), cmocka_unit_test(shapes_are_remembered),
	TEST_IN_FOLDER(started_again), TEST_IN_FOLDER(guesses_are_not_for_ever),
	TEST_IN_FOLDER(rank_0_decides), TEST_IN_FOLDER(a_peer_that_never_answers),
	TEST_IN_FOLDER(a_broken_file_is_replaced), cmocka_unit_test(no_place_for_it))

/*
 * activation_checkpointing changes memory and time and nothing else: losses, gradients and
 * parameters of its three settings bit for bit, over shapes, dropout, accumulation, ZeRO stages and
 * ranks. And what a training uses of its activations' buffer is what activations.h said before.
 */
#include <math.h>

#include "engine/train/training.h"
#include "proto/size.h"
#include "tests/unit/engine/tiny.h"
#include "tests/unit/test.h"

enum { STEPS = 4, SETTINGS = SPEC_RECOMPUTE_FULL + 1, TRIALS_MAX = 24 };

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t params, grads;
	int64_t bytes;         /* of the buffer, as planned */
	int64_t words_unused;  /* of it, not written by any step */
	int64_t words_written; /* behind it */
};

struct trials {
	int n;
	struct spec_config config[TRIALS_MAX];
	struct outcome outcome[TRIALS_MAX][SETTINGS];
};

static const uint32_t POISON = 0x7fc12345; /* a NaN of no operation's */

static void poison(struct warm *w)
{
	uint32_t *at = w->memory[WARM_ACTIVATIONS];

	for (int64_t i = 0; i < w->bytes[WARM_ACTIVATIONS] / 4; i++)
		at[i] = POISON;
}

static void count_words(const struct warm *w, int64_t planned, struct outcome *out)
{
	const uint32_t *at = w->memory[WARM_ACTIVATIONS];

	for (int64_t i = 0; i < w->bytes[WARM_ACTIVATIONS] / 4; i++) {
		out->words_unused += i < planned / 4 && at[i] == POISON;
		out->words_written += i >= planned / 4 && at[i] != POISON;
	}
	out->bytes = planned;
}

static int run_steps(struct training *t, struct outcome *out)
{
	char error[512] = "";

	training_reset(t);
	poison(t->warm);
	for (int step = 0; step < STEPS; step++) {
		struct step_result r;
		int rc = step_run(&t->step, false, &r, error, sizeof(error));

		if (rc) {
			fprintf(stderr, "rank %d: %s\n", t->warm->rank, error);
			return rc;
		}
		out->loss[step] = r.measure.loss;
		out->norm[step] = r.measure.grad_norm;
	}
	zero_drain(&t->warm->zero);
	k_stream_sync(t->warm->compute, INT64_MAX);
	out->params = tiny_hash(t->model.params, t->plan.param_elems * t->elem_bytes);
	out->grads = tiny_hash(t->model.grads, t->plan.param_elems * t->elem_bytes);
	count_words(t->warm, activations_bytes(&t->shape), out);
	return 0;
}

/* Whether the optimizer was run too: a try has a gradient norm, of what parameters there are. */
static bool try_first(struct training *t)
{
	char error[512];
	const struct k_step_state *state = t->optimizer.state; /* the device is the CPU */

	t->optimizer.state->grad_norm = -1;
	return training_try(t, error, sizeof(error)) == 0 && isfinite(state->grad_norm) &&
		state->grad_norm >= 0 && state->skip == 0;
}

static bool tries; /* before a training */

static int train(struct warm *w, struct collectives_group *group, const struct spec_config *config,
	struct outcome *out)
{
	struct training t;
	struct dataset data;
	int rc = tiny_open(&t, &data, w, group, config);

	if (rc)
		return rc;
	rc = tries && !try_first(&t) ? -EPROTO : run_steps(&t, out);
	tiny_close(&t, &data);
	return rc;
}

/* The settings in turn, from none to full: the buffer stays as large as the first needs it. */
static int run_rank(struct ranks_self *self)
{
	const struct trials *trials = self->arg;
	struct warm w;
	int rc = tiny_warm(&w, self);

	for (int i = 0; i < trials->n && !rc; i++) {
		struct spec_config config = trials->config[i];
		struct outcome out[SETTINGS] = {0};

		for (int r = 0; r < SETTINGS && !rc; r++) {
			config.recompute = (enum spec_recompute)r;
			rc = train(&w, self->world > 1 ? self->all : NULL, &config, &out[r]);
		}
		if (self->rank == 0)
			memcpy(self->shared + (size_t)i * sizeof(out), out, sizeof(out));
	}
	warm_finish(&w);
	return rc ? 1 : 0;
}

static void run(struct trials *t, int world)
{
	_Static_assert(sizeof(t->outcome) <= RANKS_SHARED_BYTES, "outcomes fit");
	assert_int_equal(ranks_run_well(world, run_rank, t, t->outcome, sizeof(t->outcome)), 0);
}

static void check_same(const struct trials *t)
{
	for (int i = 0; i < t->n; i++)
		for (int r = 1; r < SETTINGS; r++) {
			const struct outcome *a = &t->outcome[i][0], *b = &t->outcome[i][r];
			const char *name = spec_recompute_name((enum spec_recompute)r);

			for (int step = 0; step < STEPS; step++)
				assert_true(isfinite(b->loss[step]) && isfinite(b->norm[step]));
			if (memcmp(a->loss, b->loss, sizeof(a->loss)))
				fail_msg("trial %d, %s: other losses", i, name);
			if (memcmp(a->norm, b->norm, sizeof(a->norm)))
				fail_msg("trial %d, %s: other gradient norms", i, name);
			if (a->grads != b->grads)
				fail_msg("trial %d, %s: other gradients", i, name);
			if (a->params != b->params)
				fail_msg("trial %d, %s: other parameters", i, name);
		}
	assert_true(t->outcome[0][0].loss[0] != t->outcome[0][0].loss[STEPS - 1]);
}

static void add(struct trials *t, const struct spec_config *config)
{
	assert_true(t->n < TRIALS_MAX);
	t->config[t->n++] = *config;
}

/* Both kinds of GELU, with and without dropout. */
static void add_kinds(struct trials *t, const struct spec_config *config)
{
	for (int gelu = 0; gelu < 2; gelu++)
		for (int dropout = 0; dropout < 2; dropout++) {
			struct spec_config c = *config;

			c.model.gelu = gelu ? SPEC_GELU_EXACT : SPEC_GELU_TANH;
			c.model.dropout = dropout ? 0.2 : 0;
			add(t, &c);
		}
}

static void the_same_training(void **state)
{
	static struct trials trials; /* no leak in a forked rank */
	struct spec_config c = tiny_config(1, 1, 2);

	add_kinds(&trials, &c);
	c = tiny_config(1, 2, 3);
	c.model.n_layer = 5;
	c.model.n_head = 3;
	c.model.n_embd = 33; /* rows that are no multiple of any vector */
	c.seq_len = 11;
	c.model.tied_head = false;
	add_kinds(&trials, &c);
	c = tiny_config(1, 3, 1);
	c.model.n_layer = 1;
	add_kinds(&trials, &c);
	c = tiny_config(1, 1, 4); /* products of several tiles */
	c.model.n_embd = 192;
	c.model.n_positions = c.seq_len = 130;
	c.model.n_layer = 3;
	add_kinds(&trials, &c);
	run(&trials, 1);
	check_same(&trials);
}

static void the_same_training_of_ranks(void **state)
{
	static struct trials trials; /* no leak in a forked rank */

	for (int stage = 0; stage < 2; stage++)
		for (int overlap = 0; overlap < 2; overlap++) {
			struct spec_config c = tiny_config(2, 2, 2);

			c.model.n_layer = 4;
			c.model.dropout = 0.1;
			c.zero_stage = stage;
			c.overlap_comm = overlap;
			c.reduce_bucket_elems = c.allgather_bucket_elems = 2048;
			add(&trials, &c);
		}
	run(&trials, 2);
	check_same(&trials);
}

/* Sizes that leave no gaps, so that every word of the buffer is there to be written. */
static void the_buffer_is_what_was_planned(void **state)
{
	static struct trials trials; /* no leak in a forked rank */
	struct spec_config c = tiny_config(1, 1, 8);

	for (int64_t layers = 1; layers <= 5; layers += 2) {
		c.model.n_layer = layers;
		c.model.dropout = 0;
		add(&trials, &c);
		c.model.dropout = 0.2;
		add(&trials, &c);
	}
	run(&trials, 1);
	for (int i = 0; i < trials.n; i++) {
		const struct outcome *o = trials.outcome[i];

		for (int r = 0; r < SETTINGS; r++) {
			assert_int_equal(o[r].words_unused, 0);
			assert_int_equal(o[r].words_written, 0);
		}
		assert_true(o[SPEC_RECOMPUTE_SELECTIVE].bytes < o[SPEC_RECOMPUTE_NONE].bytes);
		if (trials.config[i].model.n_layer > 1)
			assert_true(
				o[SPEC_RECOMPUTE_FULL].bytes < o[SPEC_RECOMPUTE_SELECTIVE].bytes);
	}
}

/* A rank whose exit status says what was not as it should be. */
static void run_alone(int (*fn)(struct ranks_self *self))
{
	assert_int_equal(ranks_run_well(1, fn, NULL, NULL, 0), 0);
}

/* ---- a device with less memory ---- */

static int64_t free_bytes; /* 0: unchanged */
static int64_t all_bytes;  /* not 0: the part of it that is_held holds is not free */
static const struct warm *is_held;
static int64_t joining_bytes;  /* that a group of ranks takes */
static int64_t choosing_bytes; /* not 0: it chooses algorithms, which takes so much */

static struct {
	bool tries; /* trials are made in the memory that is lent for them */
	int first_rc, last_rc;
	int begun, ended;
	const void *memory;
	int64_t bytes, planned_bytes;
} lent;

static int64_t held_bytes(const struct warm *w)
{
	int64_t n = 0;

	for (int i = 0; i < WARM_SLOTS; i++)
		n += w->bytes[i];
	return n;
}

void __real_k_context_info(const struct k_context *ctx, struct k_device_info *out);
void __wrap_k_context_info(const struct k_context *ctx, struct k_device_info *out);

void __wrap_k_context_info(const struct k_context *ctx, struct k_device_info *out)
{
	__real_k_context_info(ctx, out);
	if (free_bytes)
		out->memory_free_bytes = free_bytes;
	if (all_bytes)
		out->memory_free_bytes = all_bytes - held_bytes(is_held);
	if (choosing_bytes)
		out->choices = "some GPU";
}

int64_t __wrap_k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes);

int64_t __wrap_k_choices_bytes(
	const struct k_context *ctx, const struct k_scratch_shape *shape, int64_t lent_bytes)
{
	lent.planned_bytes = lent_bytes;
	return choosing_bytes;
}

int __real_k_choices_begin(struct k_stream *s, void *memory, int64_t bytes);
int __wrap_k_choices_begin(struct k_stream *s, void *memory, int64_t bytes);
int __wrap_k_choices_end(struct k_stream *s);

/* As trials would. */
int __wrap_k_choices_begin(struct k_stream *s, void *memory, int64_t bytes)
{
	if (!lent.tries)
		return __real_k_choices_begin(s, memory, bytes);
	if (lent.first_rc)
		return lent.first_rc;
	memset(memory, 0xff, (size_t)bytes);
	lent.memory = memory;
	lent.bytes = bytes;
	lent.begun++;
	return 0;
}

int __wrap_k_choices_end(struct k_stream *s)
{
	lent.ended++;
	return lent.last_rc;
}

int64_t __wrap_collectives_growth(const struct collectives *c, int ranks);

int64_t __wrap_collectives_growth(const struct collectives *c, int ranks)
{
	return joining_bytes;
}

static struct spec_config smaller_config(enum spec_recompute recompute)
{
	struct spec_config config = tiny_config(1, 1, 8);

	config.model.n_layer = 4;
	config.recompute = recompute;
	return config;
}

/* What training_init answers with so much free memory, and what it takes. */
static int try_free(struct warm *w, enum spec_recompute recompute, int64_t bytes, char *error,
	size_t error_bytes, int64_t *taken)
{
	struct spec_config config = smaller_config(recompute);
	struct dataset data;
	struct training t;
	int rc = dataset_open(&data, &config, false, error, error_bytes);

	if (rc)
		return rc;
	error[0] = '\0';
	free_bytes = bytes;
	rc = training_init(&t, w, &config, &data, error, error_bytes);
	free_bytes = 0;
	if (!rc) {
		*taken = t.device_bytes;
		training_finish(&t);
	}
	dataset_close(&data);
	return rc;
}

/* The exit status says what was not as it should be. */
static int refuse_on_rank(struct ranks_self *self)
{
	static const char largest[] = "more; largest of a rank: activations, ";
	int64_t taken[SETTINGS], held;
	char error[512], expected[128], bytes[3][SIZE_BYTES];
	struct warm w;

	for (int r = SETTINGS - 1; r >= 0; r--) { /* each on an engine that holds nothing */
		if (tiny_warm(&w, self) ||
			try_free(&w, (enum spec_recompute)r, 0, error, sizeof(error), &taken[r]))
			return 1;
		warm_finish(&w);
	}
	if (tiny_warm(&w, self))
		return 2;
	if (try_free(&w, SPEC_RECOMPUTE_NONE, taken[SPEC_RECOMPUTE_FULL], error, sizeof(error),
		    &held) != -ENOMEM ||
		!strstr(error, largest))
		return 3;
	size_text(taken[SPEC_RECOMPUTE_NONE], bytes[0]);
	size_text(taken[SPEC_RECOMPUTE_FULL], bytes[1]);
	size_text(taken[SPEC_RECOMPUTE_NONE] - taken[SPEC_RECOMPUTE_FULL], bytes[2]);
	snprintf(expected, sizeof(expected), "memory: %s planned, %s free: %s more; ", bytes[0],
		bytes[1], bytes[2]);
	if (strncmp(error, expected, strlen(expected)) != 0)
		return 9;
	snprintf(expected, sizeof(expected), "; with activation_checkpointing full %s", bytes[1]);
	if (!strstr(error, expected))
		return 10;
	if (try_free(&w, SPEC_RECOMPUTE_NONE, taken[SPEC_RECOMPUTE_FULL] - 1, error, sizeof(error),
		    &held) != -ENOMEM ||
		strstr(error, "activation_checkpointing") ||
		!strstr(error, "; a smaller train_micro_batch_size_per_gpu takes less"))
		return 4;
	for (int i = 0; i < WARM_SLOTS; i++)
		if (w.bytes[i])
			return 5;
	if (try_free(&w, SPEC_RECOMPUTE_FULL, taken[SPEC_RECOMPUTE_FULL], error, sizeof(error),
		    &held))
		return 6;
	/* what is held already is not asked of the device again */
	if (try_free(&w, SPEC_RECOMPUTE_NONE,
		    taken[SPEC_RECOMPUTE_SELECTIVE] - taken[SPEC_RECOMPUTE_FULL], error,
		    sizeof(error), &held) != -ENOMEM ||
		!strstr(error, "; with activation_checkpointing selective "))
		return 7;
	snprintf(expected, sizeof(expected), " planned, %s held and ", bytes[1]);
	if (!strstr(error, expected))
		return 11;
	if (try_free(&w, SPEC_RECOMPUTE_NONE,
		    taken[SPEC_RECOMPUTE_NONE] - taken[SPEC_RECOMPUTE_FULL], error, sizeof(error),
		    &held))
		return 8;
	warm_finish(&w);
	return 0;
}

/* The exit status says what was not as it should be. */
static int choose_on_rank(struct ranks_self *self)
{
	const struct spec_config config = smaller_config(SPEC_RECOMPUTE_FULL);
	int64_t taken, again;
	char error[512];
	struct warm w;

	choosing_bytes = 1000;
	if (tiny_warm(&w, self) || try_free(&w, config.recompute, 0, error, sizeof(error), &taken))
		return 1;
	warm_finish(&w);
	if (tiny_warm(&w, self))
		return 2;
	if (try_free(&w, config.recompute, taken + 999, error, sizeof(error), &again) != -ENOMEM ||
		!strstr(error, " planned (with choosing algorithms 1.00 kB), "))
		return 3;
	if (try_free(&w, config.recompute, taken + 1000, error, sizeof(error), &again))
		return 4;
	/* once they are chosen nothing more is asked for */
	if (try_free(&w, config.recompute, 999, error, sizeof(error), &again) != -ENOMEM)
		return 5;
	tuned_add(&w.tuned, &config);
	if (try_free(&w, config.recompute, 1, error, sizeof(error), &again))
		return 6;
	joining_bytes = 500;
	w.collectives = self->c;
	if (try_free(&w, config.recompute, 499, error, sizeof(error), &again) != -ENOMEM ||
		!strstr(error, " planned (with communication 500 B), ") ||
		!strstr(error, " held and 499 B free: 1 B more; largest of a rank: "))
		return 7;
	if (try_free(&w, config.recompute, 500, error, sizeof(error), &again))
		return 8;
	warm_finish(&w);
	return 0;
}

static void choosing_algorithms_and_joining_are_planned_too(void **state)
{
	run_alone(choose_on_rank);
}

/* Many activations and a small model, or the contrary. */
static struct spec_config shape(bool wide)
{
	struct spec_config config = tiny_config(1, 1, wide ? 64 : 1);

	config.model.n_layer = wide ? 1 : 16;
	return config;
}

/* Its last loss, trained in so many bytes of device memory; NaN: it was refused. */
static double train_shape(struct warm *w, bool wide, int64_t device_bytes)
{
	const struct spec_config config = shape(wide);
	struct outcome out;
	int rc;

	is_held = w;
	all_bytes = device_bytes;
	rc = train(w, NULL, &config, &out);
	all_bytes = 0;
	return rc ? (double)NAN : out.loss[STEPS - 1];
}

/* The exit status says what was not as it should be. */
static int take_turns_on_rank(struct ranks_self *self)
{
	int64_t taken[2], room;
	double loss[2], again;
	struct warm w;

	for (int wide = 0; wide < 2; wide++) { /* each on an engine that holds nothing */
		if (tiny_warm(&w, self))
			return 1;
		loss[wide] = train_shape(&w, wide, 0);
		taken[wide] = held_bytes(&w);
		warm_finish(&w);
		if (!isfinite(loss[wide]))
			return 2;
	}
	room = (taken[0] > taken[1] ? taken[0] : taken[1]) + 1; /* 0 free: not known */
	if (tiny_warm(&w, self))
		return 3;
	for (int turn = 0; turn < 4; turn++) {
		again = train_shape(&w, turn % 2, room);
		if (memcmp(&again, &loss[turn % 2], sizeof(again)) != 0)
			return 4 + turn;
		if (held_bytes(&w) > room)
			return 8;
	}
	/* nothing is given back without need */
	if (isnan(train_shape(&w, false, 2 * room)) || isnan(train_shape(&w, true, 2 * room)))
		return 9;
	if (held_bytes(&w) <= room)
		return 10;
	warm_finish(&w);
	return 0;
}

/* What was planned is there before the first operation, and is enough. */
static int take_nothing_on_rank(struct ranks_self *self)
{
	struct spec_config config;
	struct outcome out;
	struct warm w;

	if (tiny_warm(&w, self))
		return 1;
	for (int wide = 0; wide < 2; wide++) {
		config = shape(wide);
		config.model.dropout = 0.1;
		if (train(&w, NULL, &config, &out))
			return 2;
		if (k_stream_grown(w.compute) != 0)
			return 3;
	}
	if (k_stream_reserve(w.compute, K_SCRATCH_OPERATION, 0) ||
		k_stream_reserve(w.compute, K_SCRATCH_PARTIAL, 0))
		return 4;
	if (train(&w, NULL, &config, &out) || k_stream_grown(w.compute) < 2)
		return 5;
	warm_finish(&w);
	return 0;
}

/* What was tried out leaves nothing behind. */
static int try_on_rank(struct ranks_self *self)
{
	const struct spec_config config = tiny_config(1, 2, 4);
	struct outcome out[2];
	struct warm w;

	memset(out, 0, sizeof(out));
	if (tiny_warm(&w, self))
		return 1;
	for (int i = 0; i < 2; i++) {
		tries = i == 1;
		if (train(&w, NULL, &config, &out[i]))
			return 2 + i;
	}
	warm_finish(&w);
	return memcmp(&out[0], &out[1], sizeof(out[0])) == 0 ? 0 : 4;
}

/* Why a try fails when its choices do; the exit status of one that does not. */
static int fail_to_choose(struct warm *w, const struct spec_config *config, const char *expected)
{
	struct training t;
	struct dataset data;
	char error[256] = "";
	int rc;

	if (tiny_open(&t, &data, w, NULL, config))
		return 5;
	rc = training_try(&t, error, sizeof(error));
	tiny_close(&t, &data);
	return rc == -ENOTRECOVERABLE && strcmp(error, expected) == 0 ? 0 : 6;
}

/* What trials write there is nothing that a training finds. */
static int lend_on_rank(struct ranks_self *self)
{
	const struct spec_config config = tiny_config(1, 2, 4);
	const char *failed = "choosing algorithms: Input/output error";
	struct outcome out[2];
	struct warm w;
	int rc;

	memset(out, 0, sizeof(out));
	if (tiny_warm(&w, self))
		return 1;
	for (int i = 0; i < 2; i++) {
		tries = lent.tries = i == 1;
		if (train(&w, NULL, &config, &out[i]))
			return 2 + i;
	}
	if (lent.begun != 1 || lent.ended != 1 || lent.memory != w.memory[WARM_ACTIVATIONS] ||
		lent.bytes != out[1].bytes || lent.planned_bytes != lent.bytes ||
		memcmp(&out[0], &out[1], sizeof(out[0])) != 0)
		return 4;
	lent.first_rc = -EIO;
	rc = fail_to_choose(&w, &config, failed);
	if (rc || lent.ended != 1)
		return 7;
	lent.first_rc = 0;
	lent.last_rc = -EIO;
	rc = fail_to_choose(&w, &config, failed);
	warm_finish(&w);
	return rc;
}

static void algorithms_are_chosen_in_the_activations_memory(void **state)
{
	run_alone(lend_on_rank);
}

static void a_try_runs_a_whole_step_and_changes_no_training(void **state)
{
	run_alone(try_on_rank);
}

static void operations_take_nothing_beyond_the_plan(void **state)
{
	run_alone(take_nothing_on_rank);
}

static void what_another_shape_has_left_is_not_in_the_way(void **state)
{
	run_alone(take_turns_on_rank);
}

static void what_does_not_fit_is_refused(void **state)
{
	run_alone(refuse_on_rank);
}

TEST_MAIN(cmocka_unit_test(the_same_training), cmocka_unit_test(the_same_training_of_ranks),
	cmocka_unit_test(the_buffer_is_what_was_planned),
	cmocka_unit_test(what_does_not_fit_is_refused),
	cmocka_unit_test(choosing_algorithms_and_joining_are_planned_too),
	cmocka_unit_test(what_another_shape_has_left_is_not_in_the_way),
	cmocka_unit_test(operations_take_nothing_beyond_the_plan),
	cmocka_unit_test(a_try_runs_a_whole_step_and_changes_no_training),
	cmocka_unit_test(algorithms_are_chosen_in_the_activations_memory))

/*
 * What ranks are trained on, looked at where it is used (case B7): over all ranks an epoch is each
 * sequence of the file once, in an order that depends on the seed alone, not on world, split of the
 * batch or bucket size. The linker puts the __wrap_ functions below between step and model.
 */
#include "engine/train/training.h"
#include "tests/unit/engine/tiny.h"
#include "tests/unit/test.h"

/* An epoch is no whole number of batches; the steps are a whole number of epochs. */
enum { T = 8, SEQUENCES = 62, BATCH = 8, STEPS = 31, SAMPLES = BATCH * STEPS, LEFT_OUT = 5 };
enum { TOKENS = SEQUENCES * T + 1 + LEFT_OUT, TRIALS_MAX = 8 };

_Static_assert(SAMPLES % SEQUENCES == 0 && SEQUENCES % BATCH != 0, "as said above");

struct trial {
	int64_t accumulation, bucket, seed;
};

struct trials {
	const char *path;
	int n;
	struct trial trial[TRIALS_MAX];
};

/* Sequences by their place in the whole run, one more than their number; 0: nothing was there. */
struct order {
	int16_t at[SAMPLES];
};

static struct {
	const struct step *step;
	struct order *order;
	int64_t micro; /* passes of this step so far */
	int64_t wrong; /* rows that are no sequence of the file, or come twice to one place */
} watch;

void __real_model_forward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);
void __wrap_model_forward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);
void __real_model_loss(
	struct model *m, k_real *losses, const int32_t *targets, double scale, const double *times);
void __wrap_model_loss(
	struct model *m, k_real *losses, const int32_t *targets, double scale, const double *times);

/* Token i of the file is i. */
static bool is_row(const int32_t *at, int32_t first)
{
	for (int32_t i = 0; i < T; i++)
		if (at[i] != first + i)
			return false;
	return true;
}

void __wrap_model_forward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	const struct spec_config *c = watch.step->config;
	int64_t place = watch.step->attempted * BATCH +
		(watch.step->rank * c->accumulation + watch.micro++) * c->micro_batch;

	k_stream_sync(m->stream, INT64_MAX); /* the tokens are on their way */
	for (int64_t row = 0; row < m->B; row++, place++) {
		const int32_t *at = pass->tokens + row * T;

		if (*at % T || *at >= SEQUENCES * T || !is_row(at, *at) || watch.order->at[place])
			watch.wrong++;
		watch.order->at[place] = (int16_t)(*at / T + 1);
	}
	__real_model_forward(m, pass, hooks);
}

void __wrap_model_loss(
	struct model *m, k_real *losses, const int32_t *targets, double scale, const double *times)
{
	const struct spec_config *c = watch.step->config;
	int64_t place = watch.step->attempted * BATCH +
		(watch.step->rank * c->accumulation + watch.micro - 1) * c->micro_batch;

	for (int64_t row = 0; row < m->B; row++, place++)
		watch.wrong += !is_row(targets + row * T, (watch.order->at[place] - 1) * T + 1);
	__real_model_loss(m, losses, targets, scale, times);
}

/* ---- one rank ---- */

static struct spec_config make_config(const struct trials *all, int i, int world)
{
	const struct trial *t = &all->trial[i];
	struct spec_config c = tiny_config(world, t->accumulation, BATCH / t->accumulation / world);

	c.data_kind = SPEC_DATA_FILE;
	snprintf(c.data_train, sizeof(c.data_train), "%s", all->path);
	c.model.vocab_size = TOKENS;
	c.seed = t->seed;
	c.reduce_bucket_elems = c.allgather_bucket_elems = t->bucket;
	c.optimizer_steps = STEPS;
	return c;
}

static int train(struct warm *w, struct collectives_group *group, const struct spec_config *c)
{
	struct training t;
	struct dataset data;
	char error[512] = "";
	int rc = tiny_open(&t, &data, w, group, c);

	if (rc)
		return rc;
	training_reset(&t);
	watch.step = &t.step;
	for (int step = 0; step < STEPS && !rc; step++) {
		struct step_result r;

		watch.micro = 0;
		rc = step_run(&t.step, false, &r, error, sizeof(error));
	}
	if (rc) {
		fprintf(stderr, "rank %d: %s\n", w->rank, error);
		return rc;
	}
	zero_drain(&w->zero);
	k_stream_sync(w->comm, INT64_MAX); /* the last gathers */
	tiny_close(&t, &data);
	return 0;
}

/* Every rank fills its places of what all share. */
static int run_rank(struct ranks_self *self)
{
	const struct trials *all = self->arg;
	struct order *orders = (struct order *)(void *)self->shared;
	struct warm w;
	int rc = tiny_warm(&w, self);

	for (int i = 0; i < all->n && !rc; i++) {
		struct spec_config c = make_config(all, i, self->world);

		watch.order = &orders[i];
		rc = train(&w, self->world > 1 ? self->all : NULL, &c);
	}
	warm_finish(&w);
	return rc || watch.wrong ? 1 : 0;
}

static void run(struct trials *all, int world, struct order *out)
{
	assert_int_equal(
		ranks_run_well(world, run_rank, all, out, (size_t)all->n * sizeof(*out)), 0);
}

/* ---- the epochs ---- */

static void check_epochs(const struct order *o)
{
	for (int epoch = 0; epoch < SAMPLES / SEQUENCES; epoch++) {
		int seen[SEQUENCES] = {0};

		for (int i = 0; i < SEQUENCES; i++) {
			int16_t sequence = o->at[epoch * SEQUENCES + i];

			assert_in_range(sequence, 1, SEQUENCES);
			assert_int_equal(seen[sequence - 1]++, 0);
		}
	}
}

static void every_sequence_once_over_all_ranks(void **state)
{
	static struct trials all; /* no leak in a forked rank */
	static struct order reference, found[TRIALS_MAX];

	all = (struct trials){.path = *state};
	for (int64_t accumulation = 1; accumulation <= 2; accumulation++)
		for (int64_t bucket = 1000; bucket <= 1000000; bucket *= 1000)
			all.trial[all.n++] = (struct trial){accumulation, bucket, 3};
	all.trial[all.n++] = (struct trial){1, 1000, 4};
	for (int world = 1; world <= 4; world *= 2) {
		run(&all, world, found);
		if (world == 1)
			reference = found[0];
		for (int i = 0; i < all.n; i++) {
			check_epochs(&found[i]);
			if (all.trial[i].seed == 3)
				assert_memory_equal(&found[i], &reference, sizeof(reference));
			else
				assert_memory_not_equal(&found[i], &reference, sizeof(reference));
		}
	}
	assert_memory_not_equal(
		reference.at, reference.at + SEQUENCES, SEQUENCES * sizeof(reference.at[0]));
}

static int make_file(void **state)
{
	char *path = strdup("/tmp/test_epoch.XXXXXX");
	int fd = path ? mkstemp(path) : -1;
	uint16_t tokens[TOKENS];

	for (int i = 0; i < TOKENS; i++)
		tokens[i] = (uint16_t)i;
	*state = path;
	return fd >= 0 && write(fd, tokens, sizeof(tokens)) == (ssize_t)sizeof(tokens) ? close(fd)
										       : -1;
}

static int remove_file(void **state)
{
	unlink(*state);
	free(*state);
	return 0;
}

TEST_MAIN(
	cmocka_unit_test_setup_teardown(every_sequence_once_over_all_ranks, make_file, remove_file))

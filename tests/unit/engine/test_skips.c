/*
 * Steps that are skipped: an overflow on one rank is one on all; neither the schedule nor AdamW's
 * time moves; the loss scale does not change what is trained. The scale's rules are run with fp32
 * arithmetic, where powers of two cost no bits; the overflows are put into one rank's gradients by
 * the linker's --wrap.
 */
#include <math.h>

#include "engine/train/training.h"
#include "tests/unit/engine/tiny.h"
#include "tests/unit/test.h"

enum { STEPS = 10, WORLD = 2 };

struct trial {
	double fixed_scale; /* 0: dynamic */
	int64_t first_good; /* steps before it overflow, on the last rank alone */
	int64_t stage;
};

struct outcome {
	double loss[STEPS], norm[STEPS], lr[STEPS], scale[STEPS];
	int64_t skipped[STEPS], applied;
	uint64_t hash[STEPS]; /* of the parameters after each step */
};

static bool overflow; /* of the next backward, here */

void __real_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);
void __wrap_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks);

void __wrap_model_backward(
	struct model *m, const struct model_pass *pass, const struct model_hooks *hooks)
{
	/* before: buckets leave during backward; where it adds to what is there */
	if (overflow)
		((float *)m->grads)[arena_find(m->arena, ARENA_WPE, 0)->first] = INFINITY;
	__real_model_backward(m, pass, hooks);
}

static uint64_t hash_params(const struct training *t)
{
	return tiny_hash(t->model.params, t->plan.param_elems * t->elem_bytes);
}

static struct spec_config make_config(const struct trial *trial)
{
	struct spec_config c = tiny_config(WORLD, 1, 4);

	c.zero_stage = trial->stage;
	c.optimizer_steps = STEPS;
	c.schedule = SPEC_WARMUP_LR;
	c.warmup_type = SPEC_WARMUP_LINEAR;
	c.warmup_max_lr = 3e-3;
	c.warmup_num_steps = 5;
	c.fp16_loss_scale = trial->fixed_scale;
	c.fp16_initial_scale_power = 10;
	c.fp16_loss_scale_window = 1000;
	c.fp16_hysteresis = 1;
	c.fp16_min_loss_scale = 1;
	return c;
}

static int run_steps(
	struct warm *w, struct training *t, const struct trial *trial, struct outcome *out)
{
	char error[512] = "";

	for (int64_t i = 0; i < STEPS; i++) {
		struct step_result r;

		overflow = i < trial->first_good && w->rank == WORLD - 1;
		if (step_run(&t->step, false, &r, error, sizeof(error))) {
			fprintf(stderr, "rank %d: %s\n", w->rank, error);
			return 1;
		}
		zero_drain(&w->zero);
		out->loss[i] = r.measure.loss;
		out->norm[i] = r.measure.grad_norm;
		out->lr[i] = r.measure.lr;
		out->scale[i] = r.measure.loss_scale;
		out->skipped[i] = r.measure.skipped;
		out->hash[i] = hash_params(t);
	}
	out->applied = t->step.applied;
	return 0;
}

static int run_rank(struct ranks_self *self)
{
	const struct trial *trial = self->arg;
	struct spec_config config = make_config(trial);
	struct outcome out = {0};
	struct training t;
	struct dataset data;
	struct warm w;
	int rc = tiny_warm(&w, self);

	if (!rc)
		rc = tiny_open(&t, &data, &w, self->all, &config);
	if (rc)
		return 1;
	config.precision = SPEC_FP16; /* its rules from here on, not its arithmetic */
	training_reset(&t);
	rc = run_steps(&w, &t, trial, &out);
	memcpy(self->shared + (size_t)self->rank * sizeof(out), &out, sizeof(out));
	tiny_close(&t, &data);
	warm_finish(&w);
	return rc;
}

/* Both ranks' outcomes. */
static void run(const struct trial *trial, struct outcome out[WORLD])
{
	assert_int_equal(ranks_run_well(WORLD, run_rank, trial, out, WORLD * sizeof(*out)), 0);
	assert_memory_equal(out[0].hash, out[1].hash, sizeof(out[0].hash));
	assert_memory_equal(out[0].scale, out[1].scale, sizeof(out[0].scale));
	assert_memory_equal(out[0].skipped, out[1].skipped, sizeof(out[0].skipped));
}

static void an_overflow_on_one_rank_is_one_on_all(void **state)
{
	for (int64_t stage = 0; stage <= 1; stage++) {
		struct trial bad = {.first_good = 3, .stage = stage}, good = {.stage = stage};
		struct outcome out[WORLD], clean[WORLD];

		run(&bad, out);
		run(&good, clean);
		assert_int_equal(out[0].applied, STEPS - 3);
		assert_int_equal(clean[0].applied, STEPS);
		for (int64_t i = 0; i < STEPS; i++) {
			assert_int_equal(out[0].skipped[i], i < 3);
			assert_true(isnan(out[0].norm[i]) == (i < 3));
			assert_true(isfinite(out[0].loss[i]));
			/* 1024 before the first, halved by each */
			assert_true(out[0].scale[i] == (i < 3 ? 1024 >> i : 128));
			/* the schedule is that of a clean run of the applied steps */
			assert_true(out[0].lr[i] == clean[0].lr[i < 3 ? 0 : i - 3]);
		}
		assert_true(out[0].hash[0] == out[0].hash[2]); /* nothing moved */
		assert_true(out[0].hash[4] != out[0].hash[3] || out[0].lr[4] == 0);
		assert_true(out[0].hash[STEPS - 1] != out[0].hash[2]);
	}
}

static void a_scale_changes_nothing(void **state)
{
	static const double scales[] = {1, 1024, 65536};
	struct outcome first[WORLD], out[WORLD];

	for (int i = 0; i < 3; i++) {
		struct trial k = {.fixed_scale = scales[i], .stage = 1};

		run(&k, out);
		assert_true(out[0].scale[0] == scales[i] && out[0].scale[STEPS - 1] == scales[i]);
		if (i == 0)
			memcpy(first, out, sizeof(first));
		assert_memory_equal(first[0].loss, out[0].loss, sizeof(out[0].loss));
		/* a double is made of the exact sum limb by limb: it rounds by where they are */
		for (int64_t s = 0; s < STEPS; s++)
			assert_true(fabs(first[0].norm[s] / out[0].norm[s] - 1) < 1e-14);
		assert_memory_equal(first[0].hash, out[0].hash, sizeof(out[0].hash));
	}
	assert_true(first[0].norm[STEPS - 1] > 0.5); /* clipping was at work */
}

TEST_MAIN(cmocka_unit_test(an_overflow_on_one_rank_is_one_on_all),
	cmocka_unit_test(a_scale_changes_nothing))

#include "proto/stats/scaling.h"

#include <math.h>

/* As in engine/train/plan.h: a bucket is a multiple of this for each rank. */
enum { ALIGN_ELEMS = 128 };

/* Factors of errors on the stated values. */
struct factors {
	double compute; /* of the work's error */
	double within_alpha, within_rate, between_alpha, between_rate;
	double interference;
};

static const struct factors expected = {0.0, 1.0, 1.0, 1.0, 1.0, SCALING_INTERFERENCE};
static const struct factors fast = {-1.0, 0.55, 1.15, 0.4, 1.2, 0.5};
static const struct factors slow = {1.0, 1.5, 0.85, 2.0, 0.6, 0.9};

double scaling_ring_us(
	const struct scaling_network *network, const struct scaling_world *world, double bytes)
{
	const double ranks = (double)(world->nodes * world->per_node);
	const double between = (double)(world->nodes - 1);
	double rate = network->within.gb_s;

	if (world->nodes * world->per_node <= 1)
		return 0.0;
	if (world->per_node == 1 || (world->nodes > 1 && network->between.gb_s < rate))
		rate = network->between.gb_s;
	return SCALING_LAUNCH_US + (ranks - 1.0 - between) * network->within.alpha_us +
		between * network->between.alpha_us + (ranks - 1.0) / ranks * bytes / (rate * 1e3);
}

/* ---- a step ---- */

struct buckets {
	int64_t arena, reduce, gather; /* elements */
	int64_t n_reduce, n_gather;
};

static int64_t round_up(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* As plan_make does. */
static void make_buckets(const struct scaling_work *work, int64_t ranks, int64_t reduce,
	int64_t gather, struct buckets *b)
{
	const int64_t unit = ranks * ALIGN_ELEMS;

	b->arena = round_up(work->params, unit);
	b->reduce = reduce >= b->arena ? b->arena : round_up(reduce, unit);
	b->gather = gather >= b->arena ? b->arena : round_up(gather, b->reduce);
	b->n_reduce = (b->arena + b->reduce - 1) / b->reduce;
	b->n_gather =
		work->zero_stage > 0 && ranks > 1 ? (b->arena + b->gather - 1) / b->gather : 0;
}

/* The fraction of backward at which elements [0, complete) are complete; forward is its mirror. */
static double part_complete(const struct scaling_work *work, int64_t complete)
{
	const int64_t early = work->params - work->late_params;

	return complete >= early ? 1.0 : (double)complete / (double)early;
}

struct step {
	const struct scaling_network *network;
	const struct scaling_world *world;
	const struct scaling_work *work;
	const struct buckets *buckets;
	double micro_us; /* a micro-batch: a third of it is forward, two thirds are backward */
	struct scaling_step *out;
};

static double bucket_us(const struct step *s, int64_t first, int64_t elems)
{
	const int64_t end = first + elems < s->buckets->arena ? first + elems : s->buckets->arena;

	return scaling_ring_us(s->network, s->world, (double)((end - first) * s->work->elem_bytes));
}

/*
 * A collective of this many us beside computation, of which *done us are done and which may
 * continue up to limit; the rest of the collective is exposed. Computation beside it is slower.
 */
static void transfer(struct step *s, double us, double *done, double limit)
{
	const double speed = 1.0 - SCALING_INTERFERENCE;
	const double hidden = s->work->overlap ? fmin(us, fmax(limit - *done, 0.0) / speed) : 0.0;

	*done += hidden * speed;
	s->out->comm_us += us;
	s->out->exposed_us += us - hidden;
}

/* Buckets are sent one after another, each when backward has completed it. */
static void add_reduction(struct step *s)
{
	const double backward = s->micro_us * 2.0 / 3.0;
	const double rings = s->work->zero_stage == 0 ? 2.0 : 1.0;
	double done = 0.0;

	for (int64_t i = 0; i < s->buckets->n_reduce; i++) {
		const int64_t first = i * s->buckets->reduce;
		const int64_t end = first + s->buckets->reduce;

		done = fmax(done, part_complete(s->work, end) * backward);
		transfer(s, rings * bucket_us(s, first, s->buckets->reduce), &done, backward);
	}
}

/* Forward reads the arena from its end and waits for the bucket that it reads. */
static void add_gather(struct step *s)
{
	const double forward = s->micro_us / 3.0;
	double done = 0.0;

	for (int64_t i = s->buckets->n_gather - 1; i >= 0; i--) {
		const int64_t first = i * s->buckets->gather;
		const int64_t end = first + s->buckets->gather;

		transfer(s, bucket_us(s, first, s->buckets->gather), &done,
			(1.0 - part_complete(s->work, end)) * forward);
	}
}

static void predict(const struct scaling_network *stated, const struct scaling_world *world,
	const struct scaling_work *work, const struct buckets *buckets, const struct factors *f,
	struct scaling_step *out)
{
	const struct scaling_network network = {
		{stated->within.alpha_us * f->within_alpha, stated->within.gb_s * f->within_rate},
		{stated->between.alpha_us * f->between_alpha,
			stated->between.gb_s * f->between_rate},
	};
	const double compute = work->compute_us * (1.0 + f->compute * work->compute_error);
	const int64_t ranks = world->nodes * world->per_node;
	struct step s = {.network = &network,
		.world = world,
		.work = work,
		.buckets = buckets,
		.micro_us = work->compute_us / (double)work->accumulation,
		.out = out};

	*out = (struct scaling_step){0};
	if (ranks > 1) {
		add_reduction(&s);
		if (work->zero_stage > 0) {
			const double norm = 2.0 * scaling_ring_us(&network, world, 0.0);

			add_gather(&s);
			out->comm_us += norm;
			out->exposed_us += norm;
		}
	}
	out->step_us = compute + work->optimizer_us / (work->zero_stage > 0 ? (double)ranks : 1.0) +
		out->exposed_us + f->interference * (out->comm_us - out->exposed_us);
}

void scaling_predict(const struct scaling_network *network, const struct scaling_world *world,
	const struct scaling_work *work, int64_t reduce_bucket_elems, int64_t gather_bucket_elems,
	struct scaling_prediction *out)
{
	struct buckets b;

	make_buckets(
		work, world->nodes * world->per_node, reduce_bucket_elems, gather_bucket_elems, &b);
	out->n_reduce = b.n_reduce;
	out->n_gather = b.n_gather;
	predict(network, world, work, &b, &expected, &out->expected);
	predict(network, world, work, &b, &fast, &out->low);
	predict(network, world, work, &b, &slow, &out->high);
}

/* ---- GPT-2 ---- */

int64_t scaling_late_params(const struct scaling_model *model)
{
	return (model->vocab_size + model->n_positions) * model->n_embd;
}

int64_t scaling_params(const struct scaling_model *model)
{
	const int64_t c = model->n_embd;

	return model->n_layer * (12 * c * c + 13 * c) + 2 * c + scaling_late_params(model) +
		(model->tied_head ? 0 : model->vocab_size * c);
}

double scaling_compute_us(const struct scaling_model *model, int64_t seq_len, int64_t sequences,
	int64_t accumulation, double tflops)
{
	const double rows = (double)(sequences * seq_len), c = (double)model->n_embd;
	const double layers = (double)model->n_layer;
	const double products = 6.0 * (12.0 * layers * c * c + c * (double)model->vocab_size);
	const double attention = 7.0 * layers * c * (double)(seq_len + 1);

	return (double)accumulation *
		(rows * (products + attention) / (tflops * 1e6) + 42.0 * layers);
}

double scaling_optimizer_us(int64_t params)
{
	return (double)params * 898.0 / 124.4e6;
}

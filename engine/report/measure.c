#include "engine/report/measure.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/host/memory.h"

enum { RATE_BITS = 43, PARTS = 8 };

int measure_init(
	struct measure *m, int64_t steps, int64_t warmup, int64_t tokens_per_step, int world)
{
	struct measure made = {
		.steps = steps,
		.warmup = warmup,
		.tokens_per_step = tokens_per_step,
		.world = world,
	};

	if (steps < 1 || warmup < 0 || warmup >= steps || tokens_per_step < 1 || world < 1)
		return -EINVAL;
	made.own = memory_zeroed((size_t)steps, sizeof(*made.own));
	made.slowest = memory_zeroed((size_t)steps, sizeof(*made.slowest));
	*m = made;
	return 0;
}

void measure_finish(struct measure *m)
{
	free(m->own);
	free(m->slowest);
	free(m->all);
	free(m->waits.own);
	free(m->waits.all);
	m->own = m->slowest = m->all = NULL;
	m->waits = (struct measure_waits){0};
}

float *measure_keep_waits(struct measure *m, int64_t n)
{
	struct measure_waits *w = &m->waits;

	if (m->done <= m->warmup || n == 0)
		return NULL;
	if (!w->own) {
		w->per_step = n;
		w->room = m->steps - m->warmup;
		if (w->room > MEASURE_WAITS_MAX / n)
			w->room = MEASURE_WAITS_MAX / n;
		w->own = memory_zeroed((size_t)(w->room * n + 1), sizeof(*w->own));
	}
	if (n != w->per_step || w->steps == w->room)
		return NULL;
	return &w->own[w->steps++ * n];
}

static void raise_to(int64_t *largest, int64_t value)
{
	if (value > *largest)
		*largest = value;
}

void measure_merge(struct measure *m, struct measure_step *all)
{
	int64_t i;
	int rank;

	m->all = all;
	for (i = 0; i < m->done; i++) {
		struct measure_step *to = &m->slowest[i];

		*to = measure_rank(m, 0)[i];
		for (rank = 1; rank < m->world; rank++) {
			const struct measure_step *from = &measure_rank(m, rank)[i];

			raise_to(&to->step_ns, from->step_ns);
			raise_to(&to->data_ns, from->data_ns);
			raise_to(&to->forward_ns, from->forward_ns);
			raise_to(&to->backward_ns, from->backward_ns);
			raise_to(&to->exposed_comm_ns, from->exposed_comm_ns);
			raise_to(&to->optimizer_ns, from->optimizer_ns);
			raise_to(&to->end_utc_ns, from->end_utc_ns);
			to->saving |= from->saving;
		}
	}
	m->saving = 0;
	for (i = m->warmup; i < m->done; i++)
		m->saving += m->slowest[i].saving != 0;
	if (m->saving >= m->done - m->warmup)
		m->saving = 0;
}

bool measure_counts(const struct measure *m, int64_t i)
{
	return i >= m->warmup && (m->saving == 0 || !m->slowest[i].saving);
}

static int64_t work_ns(const struct measure_step *s)
{
	return s->step_ns - s->exposed_comm_ns;
}

/* Number of measured steps. */
static int64_t measured(const struct measure *m)
{
	return m->done > m->warmup ? m->done - m->warmup - m->saving : 0;
}

/* Their times, which the caller frees. */
static int64_t *step_times(const struct measure *m)
{
	int64_t n = measured(m);
	int64_t *times = memory_zeroed((size_t)n, sizeof(*times));
	int64_t at = 0;

	for (int64_t i = m->warmup; i < m->done; i++)
		if (measure_counts(m, i))
			times[at++] = m->slowest[i].step_ns;
	return times;
}

static void summarise_losses(const struct measure *m, struct measure_summary *out)
{
	double sum = 0.0;
	int64_t finite = 0;
	int64_t i;

	out->loss_mean = out->loss_first = out->loss_last = (double)NAN;
	for (i = 0; i < m->done; i++) {
		double loss = m->slowest[i].loss;

		if (!isfinite(loss)) {
			out->nonfinite++;
			continue;
		}
		if (finite++ == 0)
			out->loss_first = loss;
		out->loss_last = loss;
		sum += loss;
	}
	if (finite > 0)
		out->loss_mean = sum / (double)finite;
}

const struct measure_step *measure_rank(const struct measure *m, int rank)
{
	return m->all != NULL ? &m->all[rank * m->done] : m->own;
}

void measure_rank_phases(const struct measure *m, int rank, struct measure_phases *out)
{
	const struct measure_step *steps = measure_rank(m, rank);
	const double n = (double)measured(m) * 1e9;

	*out = (struct measure_phases){0};
	for (int64_t i = m->warmup; i < m->done; i++) {
		const struct measure_step *s = &steps[i];

		if (!measure_counts(m, i))
			continue;
		out->data += (double)s->data_ns;
		out->forward += (double)s->forward_ns;
		out->backward += (double)s->backward_ns;
		out->exposed_comm += (double)s->exposed_comm_ns;
		out->optimizer += (double)s->optimizer_ns;
		out->work += (double)work_ns(s);
	}
	out->data /= n;
	out->forward /= n;
	out->backward /= n;
	out->exposed_comm /= n;
	out->optimizer /= n;
	out->work /= n;
}

/* Means over the ranks: with the rest of the step they add up to its time. */
static void average_ranks(const struct measure *m, struct measure_phases *out)
{
	*out = (struct measure_phases){0};
	for (int rank = 0; rank < m->world; rank++) {
		struct measure_phases own;

		measure_rank_phases(m, rank, &own);
		out->data += own.data / m->world;
		out->forward += own.forward / m->world;
		out->backward += own.backward / m->world;
		out->exposed_comm += own.exposed_comm / m->world;
		out->optimizer += own.optimizer / m->world;
		out->work += own.work / m->world;
	}
}

int64_t measure_elapsed_ns(const struct measure *m, int64_t first)
{
	int64_t longest = 0;

	for (int rank = 0; rank < m->world; rank++) {
		const struct measure_step *steps = measure_rank(m, rank);
		int64_t own = 0;

		for (int64_t i = first; i < m->done; i++)
			own += steps[i].step_ns;
		raise_to(&longest, own);
	}
	return longest;
}

/* As measure_elapsed_ns, for the measured steps. */
static int64_t counted_ns(const struct measure *m)
{
	int64_t longest = 0;

	for (int rank = 0; rank < m->world; rank++) {
		const struct measure_step *steps = measure_rank(m, rank);
		int64_t own = 0;

		for (int64_t i = m->warmup; i < m->done; i++)
			if (measure_counts(m, i))
				own += steps[i].step_ns;
		raise_to(&longest, own);
	}
	return longest;
}

/* Nanoseconds of a rank's work in all steps after warm-up. */
static int64_t sum_work(const struct measure *m, int rank)
{
	const struct measure_step *steps = measure_rank(m, rank);
	int64_t sum = 0;

	for (int64_t i = m->warmup; i < m->done; i++)
		if (measure_counts(m, i))
			sum += work_ns(&steps[i]);
	return sum;
}

static int64_t sum_part(const struct measure *m, int rank, int part, int parts)
{
	const struct measure_step *steps = measure_rank(m, rank);
	const int64_t n = m->done - m->warmup;
	int64_t sum = 0;

	for (int64_t i = n * part / parts; i < n * (part + 1) / parts; i++)
		if (measure_counts(m, m->warmup + i))
			sum += work_ns(&steps[m->warmup + i]);
	return sum;
}

/* In how many parts no other rank has more work. */
static int count_most(const struct measure *m, int rank, int parts)
{
	int n = 0;

	for (int part = 0; part < parts; part++) {
		const int64_t own = sum_part(m, rank, part, parts);
		bool most = true;

		for (int other = 0; other < m->world && most; other++)
			most = sum_part(m, other, part, parts) <= own;
		n += most;
	}
	return n;
}

int measure_find_slowest(const struct measure *m, struct measure_slowest *out)
{
	const double n = (double)measured(m) * 1e9;
	const size_t world = (size_t)m->world;
	const int parts = measured(m) < PARTS ? (int)measured(m) : PARTS;
	int64_t *work, slowest, others;
	int rc, rank = 0;

	if (m->world == 1 || measured(m) == 0)
		return -ENODATA;
	work = memory_zeroed(world, sizeof(*work));
	for (int i = 0; i < m->world; i++) {
		work[i] = sum_work(m, i);
		if (work[i] > work[rank])
			rank = i;
	}
	slowest = work[rank];
	work[rank] = work[world - 1];
	rc = stats_percentile(work, world - 1, 50, &others);
	free(work);
	if (rc == 0)
		*out = (struct measure_slowest){
			.rank = rank,
			.work_mean_s = (double)slowest / n,
			.others_median_s = (double)others / n,
			.parts = parts,
			.most_in = count_most(m, rank, parts),
		};
	return rc;
}

static const float *waits_of(const struct measure_waits *w, int rank)
{
	return w->all ? &w->all[rank * w->steps * w->per_step] : w->own;
}

/* The share of transfer in the kept waits; nan: not known. */
static double transfer_share(const struct measure *m)
{
	const struct measure_waits *w = &m->waits;
	double transfer = 0, total = 0;

	if (m->world > 1 && !w->all)
		return (double)NAN;
	for (int64_t i = 0; i < w->steps * w->per_step; i++) {
		float shortest = waits_of(w, 0)[i];

		for (int rank = 0; rank < m->world; rank++) {
			const float own = waits_of(w, rank)[i];

			shortest = own < shortest ? own : shortest;
			total += (double)own / m->world;
		}
		transfer += (double)shortest;
	}
	return total > 0 ? transfer / total : 0;
}

/* x to RATE_BITS significant bits: its product with a world (at most 10 bits) is then exact. */
static double keep_bits(double x)
{
	int exponent;
	double fraction = frexp(x, &exponent);

	return ldexp(nearbyint(ldexp(fraction, RATE_BITS)), exponent - RATE_BITS);
}

int measure_summarise(const struct measure *m, struct measure_summary *out)
{
	struct measure_summary s = {
		.steps_attempted = m->done,
		.steps_measured = measured(m),
		.tokens_total = m->done * m->tokens_per_step,
	};
	int64_t *times, elapsed_ns;
	int64_t i;
	int rc;

	if (s.steps_measured == 0)
		return -ENODATA;
	times = step_times(m);
	rc = stats_summarise(times, (size_t)s.steps_measured, &s.step);
	free(times);
	if (rc < 0)
		return rc;
	for (i = 0; i < m->done; i++)
		s.steps_skipped += m->slowest[i].skipped != 0;
	s.steps_applied = s.steps_attempted - s.steps_skipped;
	s.tokens_measured = s.steps_measured * m->tokens_per_step;
	elapsed_ns = counted_ns(m);
	s.seconds_measured = (double)elapsed_ns / 1e9;
	s.tok_s_per_gpu = keep_bits(stats_tokens_per_s(s.tokens_measured, elapsed_ns) / m->world);
	s.tok_s_global = s.tok_s_per_gpu * m->world;
	average_ranks(m, &s.phases);
	s.exposed_transfer = s.phases.exposed_comm * transfer_share(m);
	s.exposed_wait = s.phases.exposed_comm - s.exposed_transfer;
	s.split_steps = m->waits.steps;
	summarise_losses(m, &s);
	*out = s;
	return 0;
}

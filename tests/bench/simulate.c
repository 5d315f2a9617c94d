/*
 * simulate.c: how often verdicts are wrong. Simulated experiments go through proto/stats as real
 * ones do: random order of all arms, mirrored, with an A/A control, for each noise model, number of
 * blocks, number of arms and true effect. Prints a row per combination and the worst of each limit.
 *
 *   simulate [--experiments N] [--seed S] [--quick]
 *
 * The exit status is 1 when a limit is exceeded in a row of at least 2,000 experiments: false
 * claims above 6 % (of all experiments without an effect, any arm counts), coverage of the interval
 * below 93 %.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stats/verdict.h"

enum { ARMS_MAX = 7, BLOCKS_MAX = 48, POSITIONS = 2 * (ARMS_MAX + 2), JUDGED_MIN = 2000 };

static const double false_max = 0.06, coverage_min = 0.93;

/* ---- random numbers: xorshift64* (Vigna, 2016), Box and Muller ---- */

static uint64_t random_state = 1;

static double uniform(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return ldexp((double)(random_state * UINT64_C(0x2545f4914f6cdd1d) >> 11) + 0.5, -53);
}

static double normal(void)
{
	return sqrt(-2.0 * log(uniform())) * cos(2.0 * M_PI * uniform());
}

static double student3(void)
{
	const double a = normal(), b = normal(), c = normal();

	return normal() / sqrt((a * a + b * b + c * c) / 3.0);
}

/* ---- noise ---- */

struct noise {
	const char *name;
	double white, white_end; /* sd, from the first to the last segment */
	double drift;            /* from the first to the last segment */
	double ar1;              /* sd of an AR(1) process with rho .5 */
	double stall;            /* probability in a segment */
	double mode;             /* a jump at a random time */
	double student;          /* scale, 3 degrees of freedom */
	double voids;            /* probability that a block is disturbed and void */
};

static const struct noise noises[] = {
	{.name = "white .05 %", .white = .0005, .white_end = .0005},
	{.name = "white .5 %", .white = .005, .white_end = .005},
	{.name = "white 2 %", .white = .02, .white_end = .02},
	{.name = "white .5 %, drift 3 %", .white = .005, .white_end = .005, .drift = .03},
	{.name = "AR(1) 1 %", .ar1 = .01},
	{.name = "white .5 %, stalls", .white = .005, .white_end = .005, .stall = .02},
	{.name = "white .5 %, two modes", .white = .005, .white_end = .005, .mode = .02},
	{.name = "Student t3 .5 %", .student = .005},
	{.name = "white .2 % to 2 %", .white = .002, .white_end = .02},
	{.name = "white .5 %, void blocks", .white = .005, .white_end = .005, .voids = .15},
};

struct machine {
	const struct noise *noise;
	double at, step; /* progress of the experiment, from 0 to 1 */
	double ar1, mode_at;
};

/* The factor of a segment's time; *stalled is set when the segment contains a stall. */
static double disturb(struct machine *m, bool *stalled)
{
	const struct noise *n = m->noise;
	double x = (n->white + (n->white_end - n->white) * m->at) * normal();

	x += n->drift * m->at;
	if (n->ar1 > 0.0) {
		m->ar1 = 0.5 * m->ar1 + sqrt(0.75) * n->ar1 * normal();
		x += m->ar1;
	}
	if (n->mode > 0.0 && m->at > m->mode_at)
		x += n->mode;
	if (n->student > 0.0)
		x += n->student * student3();
	*stalled = n->stall > 0.0 && uniform() < n->stall;
	if (*stalled)
		x += 0.05 * pow(40.0, uniform()); /* 5 to 200 %, uniform in the logarithm */
	m->at += m->step;
	return fmax(1.0 + x, 0.05);
}

/* ---- an experiment: arm 0 is the baseline, the last one the control ---- */

struct experiment {
	size_t n_arms; /* compared with the baseline */
	double effect; /* of each: the baseline takes 1 + effect times as long */
	size_t blocks;
	double half_width; /* stops on it from 8 blocks on; 0: all blocks are run */
	int64_t q[ARMS_MAX + 1][BLOCKS_MAX];
	int64_t stalled[ARMS_MAX + 2];
	size_t n;
};

static void run_block(struct experiment *e, struct machine *m)
{
	const size_t n_all = e->n_arms + 2;
	double times[ARMS_MAX + 2] = {0};
	bool stalls[POSITIONS] = {false}, void_block = uniform() < m->noise->voids;
	size_t order[POSITIONS];

	for (size_t i = 0; i < n_all; i++)
		order[i] = i;
	for (size_t i = n_all; i > 1; i--) {
		const size_t j = (size_t)(uniform() * (double)i), t = order[j];

		order[j] = order[i - 1];
		order[i - 1] = t;
	}
	for (size_t i = 0; i < n_all; i++)
		order[2 * n_all - 1 - i] = order[i];
	for (size_t i = 0; i < 2 * n_all; i++) {
		const size_t arm = order[i];
		const bool slow = arm == 0 || arm == n_all - 1;

		times[arm] += (slow ? 1.0 + e->effect : 1.0) * disturb(m, &stalls[i]);
	}
	if (void_block) /* its times are never looked at */
		return;
	for (size_t i = 0; i < 2 * n_all; i++)
		e->stalled[order[i]] += stalls[i];
	for (size_t arm = 1; arm < n_all; arm++)
		e->q[arm - 1][e->n] = estimate_log_ratio(times[0], times[arm]);
	e->n++;
}

static double alpha_of(const struct experiment *e)
{
	return e->half_width > 0.0 ? VERDICT_ALPHA_STOPPING : VERDICT_ALPHA;
}

static void judge(struct experiment *e, struct verdict_result *results)
{
	const struct verdict_rules rules = {.alpha = alpha_of(e), .margin = VERDICT_MARGIN};
	struct verdict_input inputs[ARMS_MAX];

	for (size_t i = 0; i < e->n_arms; i++)
		inputs[i] = (struct verdict_input){.q = e->q[i],
			.n = e->n,
			.control_q = e->q[e->n_arms],
			.stalled_a = e->stalled[0],
			.stalled_b = e->stalled[i + 1]};
	verdict_decide(&rules, inputs, e->n_arms, results);
}

static bool narrow(const struct experiment *e, const struct verdict_result *results)
{
	bool all = e->half_width > 0.0 && e->n >= VERDICT_BLOCKS_MIN;

	for (size_t i = 0; i < e->n_arms; i++)
		all = all && results[i].estimate.half_width <= e->half_width;
	return all;
}

static void run_experiment(struct experiment *e, struct machine *m, struct verdict_result *results)
{
	size_t least = e->half_width > 0.0 ? VERDICT_BLOCKS_MIN : e->blocks;

	e->n = 0;
	memset(e->stalled, 0, sizeof(e->stalled));
	m->at = m->ar1 = 0.0;
	m->mode_at = uniform();
	m->step = 1.0 / (double)(e->blocks * 2 * (e->n_arms + 2));
	while (e->n < least)
		run_block(e, m);
	judge(e, results);
	while (e->half_width > 0.0 && e->n < e->blocks && !narrow(e, results)) {
		run_block(e, m);
		judge(e, results);
	}
	if (!results[0].control_suspect)
		return;
	for (size_t until = e->n + VERDICT_CONTROL_BLOCKS; e->n < until;)
		run_block(e, m);
	judge(e, results);
}

/* ---- counting ---- */

struct tally {
	size_t experiments, claims_any, intervals, covered;
	size_t verdicts[VERDICT_AMBIGUOUS + 1];
};

static void count(struct tally *t, const struct experiment *e, const struct verdict_result *results)
{
	const double truth = log1p(e->effect);
	bool claimed = false;

	t->experiments++;
	for (size_t i = 0; i < e->n_arms; i++) {
		const struct verdict_result *r = &results[i];

		t->verdicts[r->verdict]++;
		t->intervals += r->estimate.has_interval;
		t->covered += r->estimate.has_interval && r->estimate.lo - 5e-10 <= truth &&
			truth <= r->estimate.hi + 5e-10;
		claimed = claimed || r->verdict == VERDICT_SLOWER ||
			(e->effect == 0.0 && r->verdict == VERDICT_FASTER);
	}
	t->claims_any += claimed;
}

static double part(size_t n, size_t of)
{
	return of > 0 ? (double)n / (double)of : 0.0;
}

static double worst_false, worst_coverage = 1.0;

static void run_row(const struct noise *noise, struct experiment *e, size_t experiments)
{
	struct machine m = {.noise = noise};
	struct verdict_result results[ARMS_MAX];
	struct tally t = {0};
	double wrong, coverage;

	for (size_t i = 0; i < experiments; i++) {
		run_experiment(e, &m, results);
		count(&t, e, results);
	}
	wrong = part(t.claims_any, t.experiments);
	coverage = part(t.covered, t.intervals);
	if (wrong > worst_false)
		worst_false = wrong;
	if (coverage < worst_coverage)
		worst_coverage = coverage;
	printf("%-24s %4zu%s %4zu %5.1f  %6.1f %6.1f %6.1f %6.1f  %6.1f %6.1f%s\n", noise->name,
		e->blocks, e->half_width > 0.0 ? "s" : " ", e->n_arms, 100.0 * e->effect,
		100.0 * part(t.verdicts[VERDICT_FASTER], t.experiments * e->n_arms),
		100.0 * part(t.verdicts[VERDICT_SLOWER], t.experiments * e->n_arms),
		100.0 * part(t.verdicts[VERDICT_SAME], t.experiments * e->n_arms),
		100.0 * part(t.verdicts[VERDICT_AMBIGUOUS], t.experiments * e->n_arms),
		100.0 * wrong, 100.0 * coverage,
		wrong > false_max || coverage < coverage_min ? "  beyond the limits" : "");
	fflush(stdout);
}

static void run_all(size_t experiments, bool quick)
{
	static const double effects[] = {0.0, .005, .01, .02, .05};
	static const size_t blocks[] = {8, 12, 16, 24}, arms[] = {1, 3, 7};
	struct experiment e;

	for (size_t i = 0; i < sizeof(noises) / sizeof(noises[0]); i++) {
		for (size_t b = 0; b < (quick ? 2 : 4); b++) {
			for (size_t a = 0; a < (quick ? 1 : 3); a++) {
				if (blocks[b] < verdict_blocks_least(arms[a], VERDICT_ALPHA))
					continue;
				for (size_t f = 0; f < 5; f++) {
					e = (struct experiment){.n_arms = arms[a],
						.effect = effects[f],
						.blocks = blocks[b]};
					run_row(&noises[i], &e, experiments);
				}
			}
		}
		for (size_t f = 0; f < 5; f++) { /* stopping on the half-width */
			e = (struct experiment){.n_arms = 1,
				.effect = effects[f],
				.blocks = 40,
				.half_width = .002};
			run_row(&noises[i], &e, experiments);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"experiments", required_argument, NULL, 'n'},
		{"seed", required_argument, NULL, 's'}, {"quick", no_argument, NULL, 'q'},
		{NULL, 0, NULL, 0}};
	size_t experiments = 2000;
	bool quick = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'n') {
			experiments = strtoul(optarg, NULL, 10);
		} else if (c == 's') {
			random_state = strtoul(optarg, NULL, 10) | 1;
		} else if (c == 'q') {
			quick = true;
		} else {
			fprintf(stderr, "usage: simulate [--experiments N] [--seed S] [--quick]\n");
			return 2;
		}
	}
	printf("%zu experiments a row; blocks with s: stops on a half-width of .002\n",
		experiments);
	printf("%-24s %5s %4s %5s  %6s %6s %6s %6s  %6s %6s\n", "NOISE OF A SEGMENT", "BLOCKS",
		"ARMS", "EFF %", "FAST %", "SLOW %", "SAME %", "AMB %", "FALSE", "COVER");
	run_all(experiments, quick);
	printf("worst: false claims %.1f %% (limit %.0f), coverage %.1f %% (limit %.0f)\n",
		100.0 * worst_false, 100.0 * false_max, 100.0 * worst_coverage,
		100.0 * coverage_min);
	return experiments >= JUDGED_MIN &&
		(worst_false > false_max || worst_coverage < coverage_min);
}

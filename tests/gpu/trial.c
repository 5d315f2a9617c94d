#include "tests/gpu/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stats/stats.h"
#include "tests/unit/engine/tiny.h"

int trial_init(struct trial *m, struct ranks_self *self)
{
	struct k_device_info info;

	*m = (struct trial){.group = self->world > 1 ? self->all : NULL};
	k_context_info(self->ctx, &info);
	m->graphs = info.graphs;
	if (self->rank == 0)
		printf("%d of %s, %s, %s\n", self->world, info.name, info.library,
			collectives_library(self->c));
	return tiny_warm(&m->w, self);
}

void trial_finish(struct trial *m, struct ranks_self *self)
{
	int *counts = (int *)(void *)self->shared + (ptrdiff_t)self->rank * 2;

	trial_check(m, "device and collectives", "have not failed",
		!k_context_error(self->ctx) && !collectives_error(self->c));
	counts[0] = m->passed;
	counts[1] = m->failed;
	if (m->failed)
		_Exit(1);
	warm_finish(&m->w);
}

void trial_count(const struct ranks_end *end, int world, int *passed, int *failed)
{
	int counts[RANKS_MAX][2];

	memcpy(counts, end->shared, sizeof(counts));
	for (int r = 0; r < world; r++) {
		*passed += counts[r][0];
		*failed += counts[r][1];
		if (end->exit_status[r]) {
			printf("rank %d ended with %d FAILED\n", r, end->exit_status[r]);
			*failed += counts[r][1] == 0;
		}
	}
}

void trial_check(struct trial *m, const char *what, const char *part, bool good)
{
	if (m->w.rank == 0 || !good)
		printf("rank %d %-44s %-34s %s\n", m->w.rank, what, part, good ? "ok" : "FAILED");
	fflush(stdout);
	if (good)
		m->passed++;
	else
		m->failed++;
}

struct spec_config trial_config(enum spec_precision precision, int world)
{
	struct spec_config c = small_training_config(precision);

	c.gpus = world;
	c.accumulation = 2;
	c.batch = 2 * 2 * world;
	c.zero_stage = 1;
	c.overlap_comm = true;
	c.reduce_scatter = true;
	return c;
}

static void count_sent(const struct trial *m, struct collectives_bytes *out)
{
	if (m->group)
		collectives_count(m->group, out);
}

static int run_steps(struct trial *m, struct training *t, const struct dataset *data,
	struct trial_outcome *out, char *error, size_t error_bytes)
{
	const struct step_asked asked = {.stop = small_training_never};
	struct collectives_bytes before = {0};
	int64_t n = t->config->optimizer_steps, ns[TRIAL_STEPS_MAX];
	int rc;

	training_reset(t);
	count_sent(m, &before);
	for (int64_t i = 0; i < n; i++) {
		struct step_result r;

		/* validation uses the last update's parameters, in the middle too */
		if (i == n / 2) {
			rc = step_validate(
				&t->step, data, 8, &asked, &out->val_loss, error, error_bytes);
			if (rc)
				return rc;
		}
		rc = step_run(&t->step, false, &r, error, error_bytes);
		if (rc)
			return rc;
		out->loss[i] = r.measure.loss;
		out->norm[i] = r.measure.grad_norm;
		out->exposed_ns = r.measure.exposed_comm_ns;
		ns[i] = r.measure.step_ns;
	}
	zero_drain(&m->w.zero);
	count_sent(m, &out->sent);
	out->sent.reduce_scatter -= before.reduce_scatter;
	out->sent.all_reduce -= before.all_reduce;
	out->replayed = t->step.replayed;
	out->capture_ns = t->step.capture_ns;
	out->params = small_training_hash(&m->w, t);
	stats_percentile(ns + n / 4, (size_t)(n - n / 4), 50, &out->median_ns);
	snprintf(out->no_graph, sizeof(out->no_graph), "%s", t->step.no_graph);
	return 0;
}

bool trial_run(struct trial *m, const struct spec_config *c, bool graphs, struct trial_outcome *out)
{
	struct dataset data;
	struct training t;
	char error[512] = "";
	int rc;

	memset(out, 0, sizeof(*out));
	m->w.ranks_graphs = graphs;
	if (tiny_open(&t, &data, &m->w, m->group, c))
		return false;
	rc = run_steps(m, &t, &data, out, error, sizeof(error));
	if (rc)
		printf("rank %d: %s\n", m->w.rank, error);
	tiny_close(&t, &data);
	return rc == 0;
}

bool trial_same(const struct trial_outcome *a, const struct trial_outcome *b)
{
	if (memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
		memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 && a->params == b->params &&
		a->val_loss == b->val_loss && a->sent.reduce_scatter == b->sent.reduce_scatter &&
		a->sent.all_reduce == b->sent.all_reduce)
		return true;
	for (int i = 0; i < TRIAL_STEPS_MAX; i++)
		if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i]) {
			printf("step %d: loss %.9g %.9g norm %.9g %.9g\n", i + 1, a->loss[i],
				b->loss[i], a->norm[i], b->norm[i]);
			break;
		}
	printf("validation %.9g %.9g, parameters %" PRIx64 " %" PRIx64 ", sent %" PRId64 "+%" PRId64
	       " %" PRId64 "+%" PRId64 "\n",
		a->val_loss, b->val_loss, a->params, b->params, a->sent.reduce_scatter,
		a->sent.all_reduce, b->sent.reduce_scatter, b->sent.all_reduce);
	return false;
}

bool trial_replayed(const struct trial *m, const struct trial_outcome *o, int64_t steps)
{
	if (o->replayed == (m->graphs ? steps : 0) && !o->no_graph[0])
		return true;
	printf("rank %d: %" PRId64 " steps as a graph, %" PRId64 " expected; %s\n", m->w.rank,
		o->replayed, steps, o->no_graph);
	return false;
}

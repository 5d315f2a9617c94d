#include "engine/checkpoint/restore.h"

#include <stdio.h>
#include <string.h>

#include "engine/checkpoint/shard.h"

struct loading {
	struct training *t;
	struct shard owned;
	enum checkpoint_section section;
	int rc; /* of the device */
};

/* The position of a piece's element in the section's buffer on the device. */
static k_real *place_of(const struct loading *l, const struct shard_piece *p)
{
	const struct k_adamw *a = &l->t->optimizer.adamw;

	switch (l->section) {
	case CHECKPOINT_M:
		return a->m + p->compact;
	case CHECKPOINT_V:
		return a->v + p->compact;
	default:
		return a->master + (a->master_compact ? p->compact : p->first);
	}
}

/* The values are invalid when this returns. */
static void take(void *arg, int64_t first, int64_t n, const float *values)
{
	struct loading *l = arg;
	struct k_stream *stream = l->t->warm->compute;
	bool copied = false;

	for (int64_t i = 0; i < l->owned.n_pieces; i++) {
		const struct shard_piece *p = &l->owned.pieces[i];
		const int64_t from = p->first > first ? p->first : first;
		const int64_t to = p->first + p->n < first + n ? p->first + p->n : first + n;

		if (from >= to)
			continue;
		k_copy_in(stream, place_of(l, p) + (from - p->first), values + (from - first),
			(size_t)(to - from) * sizeof(*values));
		copied = true;
	}
	if (copied && l->rc == 0)
		l->rc = k_stream_sync(stream, K_WAIT_NS);
}

static bool overlaps(const struct shard *owned, const struct checkpoint_shard *s)
{
	int64_t j = 0;

	for (int64_t i = 0; i < owned->n_pieces; i++) {
		const struct shard_piece *p = &owned->pieces[i];

		while (j < s->n_ranges && s->ranges[j].first + s->ranges[j].n <= p->first)
			j++;
		if (j < s->n_ranges && s->ranges[j].first < p->first + p->n)
			return true;
	}
	return false;
}

/* Parameters of 16 bits, from the weights of 32. */
static void round_params(struct loading *l)
{
	struct training *t = l->t;
	const struct k_adamw *a = &t->optimizer.adamw;

	for (int64_t i = 0; a->master_compact && i < l->owned.n_pieces; i++) {
		const struct shard_piece *p = &l->owned.pieces[i];

		k_cast(t->warm->compute, (char *)a->params + p->first * t->elem_bytes,
			a->master + p->compact, p->n);
	}
}

int restore_load(struct training *t, const struct checkpoint *c, char *error, size_t error_bytes)
{
	struct loading l = {.t = t};
	int rc = 0;

	shard_owned(&t->plan, t->config->zero_stage, t->warm->rank, &l.owned);
	for (int section = 0; section < CHECKPOINT_SECTIONS && rc == 0; section++) {
		l.section = (enum checkpoint_section)section;
		for (int64_t i = 0; i < c->n_shards && rc == 0; i++)
			if (overlaps(&l.owned, &c->shards[i]))
				rc = checkpoint_stream(
					c, i, l.section, take, &l, error, error_bytes);
	}
	if (rc == 0) {
		round_params(&l);
		if (l.rc == 0)
			l.rc = k_stream_sync(t->warm->compute, K_WAIT_NS);
	}
	if (l.rc != 0)
		rc = step_failure(&t->step, l.rc, error, error_bytes);
	shard_finish(&l.owned);
	return rc;
}

void restore_finish(struct training *t, const struct checkpoint *c)
{
	const struct checkpoint_state *s = &c->state;
	struct loss_scale scale = t->step.scale;
	const char *precision = json_string_value(json_object_get(c->manifest, "precision"));

	/* a training that starts to use fp16 starts with its first scale */
	if (t->config->precision == SPEC_FP16 && precision && strcmp(precision, "fp16") == 0) {
		if (scale.dynamic)
			scale.scale = s->loss_scale;
		scale.it = s->scale_it;
		scale.last_overflow = s->last_overflow;
		scale.hysteresis_left = s->hysteresis_left;
		scale.skips_in_place = s->skips_in_place;
	}
	step_resume(&t->step, s->attempted, s->applied, &scale);
	zero_gather(&t->warm->zero);
}

#include "engine/tuned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tuning.h"
#include "proto/artifact.h"

/* All choices in force, malloc'd, with room for one more; NULL without memory. */
static struct k_choice *all_choices(const struct tuned *t, int64_t *n)
{
	struct k_choice *choices;

	*n = k_choices(t->ctx, NULL, 0);
	if (*n > TUNING_CHOICES_MAX)
		*n = TUNING_CHOICES_MAX;
	choices = calloc((size_t)*n + 1, sizeof(*choices));
	if (choices)
		k_choices(t->ctx, choices, *n);
	return choices;
}

int64_t tuned_missed(const struct tuned *t)
{
	return t->holds_for ? k_choices(t->ctx, NULL, 0) - t->n : 0;
}

/* Those in force as text, malloc'd, and its hash; NULL without memory. */
static char *text_in_force(struct tuned *t)
{
	struct k_choice *choices = all_choices(t, &t->n);
	char *text = choices ? tuning_text(t->holds_for, choices, t->n) : NULL;

	free(choices);
	if (!text || artifact_sha256(text, strlen(text), t->sha256))
		t->sha256[0] = '\0';
	return text;
}

static void read_kept(struct tuned *t)
{
	struct k_choice *choices = NULL;
	int64_t n = 0, kept = 0;
	char *text;
	int rc = tuning_read(t->dir, t->holds_for, &choices, &n, t->note, sizeof(t->note));

	if (rc == -ENOENT)
		t->note[0] = '\0';
	if (rc)
		return;
	text = tuning_text(t->holds_for, choices, n);
	if (text && artifact_sha256(text, strlen(text), t->file_sha256))
		t->file_sha256[0] = '\0';
	free(text);
	/* what could not be timed then may be now */
	for (int64_t i = 0; i < n; i++)
		if (choices[i].timed)
			choices[kept++] = choices[i];
	if (k_choices_set(t->ctx, choices, kept) < 0)
		snprintf(t->note, sizeof(t->note), "no memory for the choices that were kept");
	free(choices);
}

void tuned_init(struct tuned *t, struct k_context *ctx, const char *dir)
{
	struct k_device_info info;

	k_context_info(ctx, &info);
	*t = (struct tuned){.ctx = ctx, .dir = dir, .holds_for = info.choices};
	if (t->holds_for && t->dir)
		read_kept(t);
}

/* All that sizes and places of a training's tensors depend on. */
static struct tuned_shape shape_of(const struct spec_config *c)
{
	const struct spec_model *m = &c->model;

	return (struct tuned_shape){{m->n_layer, m->n_head, m->n_embd, m->vocab_size,
		m->n_positions, m->tied_head, m->gelu, m->dropout > 0, c->micro_batch, c->seq_len,
		c->precision, c->recompute}};
}

bool tuned_has(const struct tuned *t, const struct spec_config *config)
{
	struct tuned_shape shape = shape_of(config);
	int64_t n = t->shapes < TUNED_SHAPES ? t->shapes : TUNED_SHAPES;

	for (int64_t i = 0; i < n; i++)
		if (memcmp(&t->shape[i], &shape, sizeof(shape)) == 0)
			return true;
	return !t->holds_for;
}

void tuned_add(struct tuned *t, const struct spec_config *config)
{
	if (!tuned_has(t, config))
		t->shape[t->shapes++ % TUNED_SHAPES] = shape_of(config);
}

/* ---- sharing ---- */

/* Rank 0's come first in *all. Every rank gets the same answer but for -ENOMEM of its own. */
static int gather(const struct tuned *t, struct collectives_group *group, struct k_stream *comm,
	struct k_choice **all, int64_t *n)
{
	size_t world = (size_t)collectives_world(group);
	int64_t own_n, counts[SPEC_WORLD_MAX] = {0};
	struct k_choice *own = all_choices(t, &own_n), *sent = NULL, *got = NULL;
	int rc = -ENOMEM;

	if (!own)
		return rc;
	collectives_gather_all(group, counts, &own_n, sizeof(own_n), comm);
	k_stream_sync(comm, INT64_MAX);
	*n = counts[0] > TUNING_CHOICES_MAX ? TUNING_CHOICES_MAX : counts[0];
	sent = calloc((size_t)*n + 1, sizeof(*sent));
	got = calloc(world * (size_t)*n + 1, sizeof(*got));
	if (sent && got) {
		memcpy(sent, own, (size_t)(own_n < *n ? own_n : *n) * sizeof(*sent));
		collectives_gather_all(group, got, sent, (size_t)*n * sizeof(*sent), comm);
		k_stream_sync(comm, INT64_MAX);
		rc = 0;
	}
	free(own);
	free(sent);
	if (rc)
		free(got);
	else
		*all = got;
	return rc;
}

static void keep(struct tuned *t, int rank)
{
	char *text = text_in_force(t);

	t->note[0] = '\0';
	if (rank == 0 && text && t->dir && strcmp(t->sha256, t->file_sha256) != 0 &&
		tuning_write(t->dir, t->holds_for, text, t->note, sizeof(t->note)) == 0)
		memcpy(t->file_sha256, t->sha256, sizeof(t->sha256));
	free(text);
}

int tuned_share(struct tuned *t, struct collectives_group *group, struct k_stream *comm, int rank,
	int64_t *changed)
{
	struct k_choice *all = NULL;
	int64_t n = 0, others = 0;
	int rc = 0;

	if (!t->holds_for)
		return 0;
	if (group)
		rc = gather(t, group, comm, &all, &n);
	if (rc == 0 && n > 0) {
		others = k_choices_set(t->ctx, all, n);
		rc = others < 0 ? -ENOMEM : 0;
	}
	free(all);
	if (rc)
		return rc;
	keep(t, rank);
	*changed = others;
	return 0;
}

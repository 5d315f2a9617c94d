#include "engine/train/tuned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/patience.h"
#include "engine/train/tuning.h"
#include "proto/artifact.h"

/* All present choices, malloc'd, with room for one more; NULL without memory. */
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

/* The present choices as text, malloc'd, and its hash; NULL without memory. */
static char *text_in_force(struct tuned *t)
{
	struct k_choice *choices = all_choices(t, &t->n);
	char *text = choices ? tuning_text(t->holds_for, choices, t->n) : NULL;

	t->guessed = 0;
	for (int64_t i = 0; choices && i < t->n; i++)
		t->guessed += choices[i].timed == 0;
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
	/* choices that could not be timed then may be possible now */
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

/* All that determines sizes and places of a training's tensors. */
static struct tuned_shape shape_of(const struct spec_config *c)
{
	const struct spec_model *m = &c->model;

	return (struct tuned_shape){{m->n_layer, m->n_head, m->n_embd, m->vocab_size,
		m->n_positions, m->tied_head, m->gelu, m->dropout > 0, c->micro_batch, c->seq_len,
		c->precision, c->recompute, c->accumulation > 1}};
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

/* Buffers of collectives. */
struct exchange {
	int64_t n; /* of each rank's choices in got, rank 0's first */
	int64_t own_n, counts[SPEC_WORLD_MAX];
	struct k_choice *own, *sent, *got;
	bool busy; /* the device is not idle, and may still write */
};

/* Busy memory stays allocated: then this process ends soon. */
static void exchange_destroy(struct exchange *x)
{
	if (!x || x->busy)
		return;
	free(x->own);
	free(x->sent);
	free(x->got);
	free(x);
}

static int wait_for_peers(struct exchange *x, const struct tuned_peers *peers)
{
	const struct patience p = {.collectives = peers->collectives,
		.timeout_ns = K_WAIT_NS,
		.patience_ns = peers->patience_ns};
	int rc = patience_stream(&p, peers->comm);

	x->busy = rc != 0;
	return rc || !collectives_error(peers->collectives) ? rc : -EPIPE;
}

/* Every rank gets the same result except for its own -ENOMEM. */
static int gather(struct exchange *x, const struct tuned *t, const struct tuned_peers *peers)
{
	size_t bytes, world = (size_t)collectives_world(peers->group);
	int rc;

	x->own = all_choices(t, &x->own_n);
	if (!x->own)
		return -ENOMEM;
	collectives_gather_all(
		peers->group, x->counts, &x->own_n, sizeof(x->own_n), peers->comm);
	rc = wait_for_peers(x, peers);
	if (rc)
		return rc;
	x->n = x->counts[0] > TUNING_CHOICES_MAX ? TUNING_CHOICES_MAX : x->counts[0];
	bytes = (size_t)x->n * sizeof(*x->own);
	x->sent = calloc(1, bytes + 1);
	x->got = calloc(1, world * bytes + 1);
	if (!x->sent || !x->got)
		return -ENOMEM;
	memcpy(x->sent, x->own, (size_t)(x->own_n < x->n ? x->own_n : x->n) * sizeof(*x->own));
	collectives_gather_all(peers->group, x->got, x->sent, bytes, peers->comm);
	return wait_for_peers(x, peers);
}

static int take_rank_0s(struct tuned *t, const struct tuned_peers *peers, int64_t *changed)
{
	struct exchange *x = calloc(1, sizeof(*x));
	int rc = x ? gather(x, t, peers) : -ENOMEM;

	if (rc == 0) {
		*changed = k_choices_set(t->ctx, x->got, x->n);
		rc = *changed < 0 ? -ENOMEM : 0;
	}
	exchange_destroy(x);
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

int tuned_share(struct tuned *t, const struct tuned_peers *peers, int rank, int64_t *changed)
{
	int64_t others = 0;
	int rc;

	if (!t->holds_for)
		return 0;
	rc = peers ? take_rank_0s(t, peers, &others) : 0;
	if (rc)
		return rc;
	keep(t, rank);
	*changed = others;
	return 0;
}

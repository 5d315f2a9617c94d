#include "engine/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/shard.h"
#include "engine/train/schedule.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/version.h"

#define INT(value) ((json_int_t)(value))

void manifest_file(int rank, int world, char out[MANIFEST_FILE_BYTES])
{
	snprintf(out, MANIFEST_FILE_BYTES, "shard-%d-of-%d.bin", rank, world);
}

/* ---- parts ---- */

static json_t *pack_model(const struct spec_model *m)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:f}", "n_layer",
		INT(m->n_layer), "n_head", INT(m->n_head), "n_embd", INT(m->n_embd), "vocab_size",
		INT(m->vocab_size), "vocab_padded", INT(arena_vocab_padded(m->vocab_size)),
		"n_positions", INT(m->n_positions), "tied_head", m->tied_head, "gelu",
		m->gelu == SPEC_GELU_EXACT ? "exact" : "tanh", "dropout", m->dropout);
}

static json_t *pack_tensors(const struct arena *a)
{
	json_t *list = json_array();
	char name[64];

	for (int64_t i = 0; i < a->n_entries; i++) {
		const struct arena_entry *e = &a->entries[i];

		if (e->tensor < ARENA_PER_BLOCK)
			snprintf(name, sizeof(name), "h.%" PRId64 ".%s", e->layer,
				arena_tensor_name(e->tensor));
		else
			snprintf(name, sizeof(name), "%s", arena_tensor_name(e->tensor));
		json_array_append_new(list,
			json_pack("{s:s, s:I, s:I, s:I}", "name", name, "first", INT(e->first),
				"rows", INT(e->rows), "cols", INT(e->cols)));
	}
	return list;
}

json_t *manifest_begin(const struct manifest_head *h)
{
	const struct spec_config *c = h->config;
	json_t *place = json_pack("{s:s, s:I, s:s, s:s, s:I, s:I}", "schema_version",
		CHECKPOINT_SCHEMA, "run_id", INT(h->run), "name", h->name, "arm", h->arm, "attempt",
		INT(h->attempt), "segment", INT(h->segment));
	json_t *work = json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o}", "precision",
		spec_precision_name(c->precision), "world", INT(h->plan->world), "zero_stage",
		INT(c->zero_stage), "model", pack_model(&c->model), "seq_len", INT(c->seq_len),
		"train_batch_size", INT(c->batch), "train_sequences", INT(h->train_sequences),
		"param_elems", INT(h->plan->param_elems), "tensors", pack_tensors(h->arena));
	json_t *origin = json_pack("{s:O, s:s, s:o, s:s}", "data", h->data, "spec_sha256",
		h->spec_sha256, "spec", json_loads(h->spec_text, 0, NULL), "build", version_build);

	json_object_update_missing(place, work);
	json_object_update_missing(place, origin);
	json_decref(work);
	json_decref(origin);
	return place;
}

struct checkpoint_state manifest_state(const struct step *step)
{
	return (struct checkpoint_state){
		.attempted = step->attempted,
		.applied = step->applied,
		.samples = step->attempted * step->config->batch,
		.loss_scale = step->scale.scale,
		.scale_it = step->scale.it,
		.last_overflow = step->scale.last_overflow,
		.hysteresis_left = step->scale.hysteresis_left,
		.skips_in_place = step->scale.skips_in_place,
	};
}

static json_t *pack_state(const struct spec_config *c, const struct checkpoint_state *s)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:{s:f, s:I, s:I, s:I, s:I}}", "attempted",
		INT(s->attempted), "applied", INT(s->applied), "samples", INT(s->samples), "seed",
		INT(c->seed), "lr", schedule_lr(c, s->applied), "loss_scale", "scale",
		s->loss_scale, "it", INT(s->scale_it), "last_overflow", INT(s->last_overflow),
		"hysteresis_left", INT(s->hysteresis_left), "skips_in_place",
		INT(s->skips_in_place));
}

static json_t *pack_shard(
	const struct plan *plan, int64_t stage, int rank, const struct manifest_shard *hashes)
{
	json_t *ranges = json_array(), *sha256 = json_object();
	char file[MANIFEST_FILE_BYTES];
	struct shard s;
	json_t *row;

	shard_written(plan, stage, rank, &s);
	for (int64_t i = 0; i < s.n_pieces; i++)
		json_array_append_new(
			ranges, json_pack("[I, I]", INT(s.pieces[i].first), INT(s.pieces[i].n)));
	for (int i = 0; i < CHECKPOINT_SECTIONS; i++)
		json_object_set_new(sha256, checkpoint_section_name((enum checkpoint_section)i),
			json_string(hashes->sha256[i]));
	manifest_file(rank, plan->world, file);
	row = json_pack("{s:s, s:I, s:o, s:o}", "file", file, "bytes",
		INT(s.elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS), "ranges", ranges,
		"sha256", sha256);
	shard_finish(&s);
	return row;
}

char *manifest_text(const json_t *begun, const struct spec_config *config, const struct plan *plan,
	const char *train_sha256, const struct checkpoint_state *state,
	const struct manifest_shard *shards)
{
	json_t *manifest = json_copy((json_t *)begun), *list = json_array();
	char *text;

	for (int rank = 0; rank < plan->world; rank++)
		json_array_append_new(
			list, pack_shard(plan, config->zero_stage, rank, &shards[rank]));
	json_object_set_new(manifest, "step", json_integer(INT(state->attempted)));
	json_object_set_new(
		manifest, "train_sha256", train_sha256 ? json_string(train_sha256) : json_null());
	json_object_set_new(manifest, "state", pack_state(config, state));
	json_object_set_new(manifest, "shards", list);
	json_object_set_new(manifest, "written_at", clock_json(clock_utc_ns()));
	text = json_dumps(manifest, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(manifest);
	return text;
}

#include "engine/comm/agreement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/patience.h"
#include "proto/artifact.h"
#include "proto/host/clock.h"
#include "proto/protocol.h"
#include "proto/size.h"

struct agreement {
	char sha256[65]; /* of spec, plan, model shape and the identity of its data */
	bool prepared;
	bool tuned; /* the kernels' choices are made, and the same on all ranks it was among then */
};

static void fill_agreement(const struct segment *s, bool prepared, struct agreement *out)
{
	char text[1024], data[65], *identity = json_dumps(s->data, JSON_SORT_KEYS | JSON_COMPACT);

	memset(out, 0, sizeof(*out));
	if (identity == NULL || artifact_sha256(identity, strlen(identity), data))
		prepared = false;
	free(identity);
	out->prepared = prepared;
	if (!prepared)
		return;
	out->tuned = tuned_has(&s->training.warm->tuned, &s->config);
	snprintf(text, sizeof(text),
		"%s world %d arena %" PRId64 " of %" PRId64 " reduce %" PRId64 " x %" PRId64
		" gather %" PRId64 " x %" PRId64 " steps %" PRId64 " sequences %" PRId64
		" data %s",
		s->spec_sha256, s->training.plan.world, s->training.plan.param_elems,
		s->training.plan.arena_elems, s->training.plan.n_reduce,
		s->training.plan.reduce_elems, s->training.plan.n_gather,
		s->training.plan.gather_elems, s->config.optimizer_steps, s->train.n_sequences,
		data);
	if (artifact_sha256(text, strlen(text), out->sha256))
		out->prepared = false;
}

static bool compare_agreements(struct segment *s, const struct agreement *all, bool prepared)
{
	if (!prepared)
		return false;
	for (int i = 0; i < s->world; i++)
		if (!all[i].prepared) {
			s->failure.silent = true;
			return segment_fail(s, "peer_refused", "rank %d could not begin", i);
		}
	for (int i = 1; i < s->world; i++)
		if (memcmp(all[i].sha256, all[0].sha256, sizeof(all[0].sha256)) != 0)
			return segment_fail(s, "spec_mismatch",
				"rank %d means another spec, plan or data than rank 0 (%.12s, "
				"%.12s)",
				i, all[i].sha256, all[0].sha256);
	return true;
}

static bool try_out(struct segment *s)
{
	if (!training_try(&s->training, s->failure.message, sizeof(s->failure.message)))
		return true;
	segment_poison(s, ENGINE_EXIT_POISONED);
	s->failure.reason = "device";
	return false;
}

/*
 * Before the first step, so that all steps of all ranks go by the same choices. A rank that cannot
 * go on makes the others wait.
 */
static bool tune(struct segment *s, struct warm *w, struct link *link)
{
	const struct tuned_peers peers = {.collectives = w->collectives,
		.group = s->group,
		.comm = w->comm,
		.patience_ns = PATIENCE_NS};
	int64_t changed = 0, begin = clock_mono_ns(), took;
	char size[SIZE_BYTES];
	int rc;

	if (!try_out(s))
		return false;
	took = k_choices_took_bytes(w->ctx);
	rc = tuned_share(&w->tuned, s->group ? &peers : NULL, w->rank, &changed);
	if (rc == -ENOMEM) {
		segment_poison(s, ENGINE_EXIT_POISONED);
		return segment_fail(s, "no_memory", "no memory for the choices of algorithms");
	}
	if (rc)
		return segment_lost(s, w, rc);
	if (changed > 0) {
		graphs_finish(&w->graphs);
		if (!try_out(s)) /* the kernels of rank 0's choices are loaded too */
			return false;
	}
	tuned_add(&w->tuned, &s->config);
	if (w->tuned.guessed > 0 && w->rank == 0)
		link_log(link, "warning",
			"no memory to time the algorithms of %" PRId64
			" products: they are the library's guess",
			w->tuned.guessed);
	if (w->tuned.note[0])
		link_log(link, "warning", "the choices of algorithms are not kept: %s",
			w->tuned.note);
	metrics_log_add(&s->log, "algorithms chosen in %.3f ms, with %s beside the buffers",
		(double)(clock_mono_ns() - begin) / 1e6, size_text(took, size));
	return true;
}

static bool all_tuned(const struct segment *s, const struct agreement *all)
{
	bool tuned = true;

	for (int i = 0; i < s->world; i++)
		tuned = tuned && all[i].tuned;
	return tuned;
}

static bool join(struct segment *s)
{
	if (training_join(&s->training, s->group))
		return segment_fail(s, "no_memory", "no memory for events");
	return true;
}

/* The others wait for this rank. */
static bool no_group(struct segment *s, const struct warm *w)
{
	if (collectives_error(w->collectives))
		return segment_lost(s, w, 0);
	segment_poison(s, ENGINE_EXIT_POISONED);
	return segment_fail(s, "no_memory", "no memory for a group of %d ranks", s->world);
}

/* All ranks are ready to begin. */
static bool settle(
	struct segment *s, struct warm *w, const struct agreement *all, struct link *link)
{
	bool tuned = all_tuned(s, all) || tune(s, w, link);

	snprintf(s->tuning_sha256, sizeof(s->tuning_sha256), "%s", w->tuned.sha256);
	return tuned;
}

bool agreement_reach(struct segment *s, struct warm *w, bool prepared, struct link *link)
{
	struct agreement own, *all;
	bool agreed;

	if (s->world < 1 || s->world > w->world || w->rank >= s->world)
		return false;
	if (s->world == 1) {
		prepared = prepared && join(s);
		fill_agreement(s, prepared, &own);
		return prepared && settle(s, w, &own, link);
	}
	all = calloc((size_t)s->world, sizeof(*all));
	if (!all || collectives_group(w->collectives, s->world, &s->group)) {
		free(all);
		return no_group(s, w);
	}
	/* before, so that a rank without memory for its events is heard of by all */
	prepared = prepared && join(s);
	fill_agreement(s, prepared, &own);
	collectives_gather_all(s->group, all, &own, sizeof(own), w->comm);
	agreed = segment_sync(s, w) && compare_agreements(s, all, prepared) &&
		settle(s, w, all, link);
	free(all);
	return agreed;
}

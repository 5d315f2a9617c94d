#include "engine/agreement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm/nodes.h"
#include "engine/comm/patience.h"
#include "engine/segment_private.h"
#include "proto/artifact.h"
#include "proto/checkpoint.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/size.h"

/* Longest wait for hashes until the ranks exchange messages again. */
#define CONTENT_ROUND_NS CLOCK_S_NS
/*
 * A node that reads a file for the first time needs much longer than one that has it in memory. Its
 * gpt2d checks meanwhile that it is alive.
 */
#define READY_NS (3600 * CLOCK_S_NS)

/* ---- what all ranks must agree on ---- */

struct agreement {
	char sha256[65]; /* of spec, plan and model shape */
	char resume[65]; /* of the initial checkpoint; empty: none */
	char data[65];   /* of the identity of its data, which is comparable only within its node */
	bool prepared;
	bool tuned; /* the kernels' choices are made, and were the same on all ranks last time */
	bool idle;  /* the communicator was idle for so long that it must be tested */
};

static void fill_agreement(
	const struct segment *s, const struct warm *w, bool prepared, struct agreement *out)
{
	char text[1024], *identity = json_dumps(s->data, JSON_SORT_KEYS | JSON_COMPACT);

	memset(out, 0, sizeof(*out));
	artifact_sha256(identity, strlen(identity), out->data);
	free(identity);
	out->prepared = prepared;
	out->idle = w->idle_test_ns > 0 && s->received_ns - w->used_ns >= w->idle_test_ns;
	if (!prepared)
		return;
	out->tuned = tuned_has(&s->training.warm->tuned, &s->config);
	if (s->resume.open)
		snprintf(out->resume, sizeof(out->resume), "%s", s->resume.open->sha256);
	snprintf(text, sizeof(text),
		"%s world %d arena %" PRId64 " of %" PRId64 " reduce %" PRId64 " x %" PRId64
		" gather %" PRId64 " x %" PRId64 " steps %" PRId64 " sequences %" PRId64,
		s->spec_sha256, s->training.plan.world, s->training.plan.param_elems,
		s->training.plan.arena_elems, s->training.plan.n_reduce,
		s->training.plan.reduce_elems, s->training.plan.n_gather,
		s->training.plan.gather_elems, s->config.optimizer_steps, s->train.n_sequences);
	artifact_sha256(text, strlen(text), out->sha256);
}

static bool compare_agreements(
	struct segment *s, const struct warm *w, const struct agreement *all, bool prepared)
{
	int first;

	if (!prepared)
		return false;
	for (int i = 0; i < s->world; i++)
		if (!all[i].prepared) {
			s->failure.silent = true;
			return segment_fail(
				s, "peer_refused", "rank %d could not start the segment", i);
		}
	for (int i = 1; i < s->world; i++) {
		if (memcmp(all[i].sha256, all[0].sha256, sizeof(all[0].sha256)) != 0)
			return segment_fail(s, "spec_mismatch",
				"rank %d has another spec or plan than rank 0 (%.12s, %.12s)", i,
				all[i].sha256, all[0].sha256);
		if (strcmp(all[i].resume, all[0].resume) != 0)
			return segment_fail(s, "spec_mismatch",
				"rank %d has another checkpoint than rank 0 (%.12s, "
				"%.12s): it must be in a folder that all nodes share",
				i, all[i].resume[0] ? all[i].resume : "none",
				all[0].resume[0] ? all[0].resume : "none");
		first = nodes_first(w->nodes, i);
		if (memcmp(all[i].data, all[first].data, sizeof(all[0].data)) != 0)
			return segment_fail(s, "spec_mismatch",
				"rank %d and rank %d opened different data files with the "
				"same names: the files were replaced meanwhile",
				i, first);
	}
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
 * Before the first step, so that all steps of all ranks use the same choices. If a rank fails here,
 * the others wait for it.
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
			" products: the library's guess is used",
			w->tuned.guessed);
	if (w->tuned.note[0])
		link_log(link, "warning", "the choices of algorithms are not saved: %s",
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

static bool join(struct segment *s, const struct warm *w)
{
	if (training_join(&s->training, s->group))
		return segment_fail(s, "no_memory", "no memory for events");
	return segment_save_begin(s, w);
}

/* The others wait for this rank. */
static bool no_group(struct segment *s, const struct warm *w)
{
	if (collectives_error(w->collectives))
		return segment_lost(s, w, 0);
	segment_poison(s, ENGINE_EXIT_POISONED);
	return segment_fail(s, "no_memory", "no memory for a group of %d ranks", s->world);
}

/* All ranks are ready to start. */
static bool tune_together(
	struct segment *s, struct warm *w, const struct agreement *all, struct link *link)
{
	bool tuned = all_tuned(s, all) || tune(s, w, link);

	snprintf(s->tuning_sha256, sizeof(s->tuning_sha256), "%s", w->tuned.sha256);
	return tuned;
}

/* ---- the same data on all nodes ---- */

/*
 * The content of a node's files, from its first rank; the other ranks are done and have no hashes.
 */
struct contents {
	char train[65], validation[65], weights[65];
	bool done, stop;
};

static void take_contents(
	const struct segment *s, const struct warm *w, struct link *link, struct contents *own)
{
	const char *train, *validation, *weights;

	own->done = content_wait_for(s->content, CONTENT_ROUND_NS);
	own->stop = link_stop_asked(link, s->run, s->segment);
	if (!own->done || nodes_first(w->nodes, w->rank) != w->rank)
		return;
	train = content_train(s->content);
	validation = content_validation(s->content);
	weights = content_weights(s->content);
	snprintf(own->train, sizeof(own->train), "%s", train ? train : "");
	snprintf(own->validation, sizeof(own->validation), "%s", validation ? validation : "");
	snprintf(own->weights, sizeof(own->weights), "%s", weights ? weights : "");
}

static bool same_file(struct segment *s, int rank, const char *path, const char *there,
	const char *here, bool needed)
{
	if (!needed)
		return true;
	if (!there[0] || !here[0])
		return segment_fail(s, "data",
			"%s: the node of rank %d could not hash it: the file changed, or "
			"cannot be read",
			path, there[0] ? 0 : rank);
	return strcmp(there, here) == 0 ||
		segment_fail(s, "spec_mismatch",
			"%s: the node of rank %d has a file with other content than the "
			"node of rank 0 (SHA-256 %.12s, %.12s); copy the same file to every node",
			path, rank, there, here);
}

static bool compare_contents(struct segment *s, const struct warm *w, const struct contents *all)
{
	bool same = true;

	for (int i = 1; i < s->world && same; i++)
		if (nodes_first(w->nodes, i) == i)
			same = same_file(s, i, s->config.data_train, all[i].train, all[0].train,
				       true) &&
				same_file(s, i, s->config.data_val, all[i].validation,
					all[0].validation, s->has_val) &&
				same_file(s, i, s->config.init_safetensors, all[i].weights,
					all[0].weights, s->has_weights);
	return same;
}

/*
 * Names, times and inodes are not comparable between nodes. Hashing a large file takes longer than
 * a peer may be silent, so the ranks exchange messages in rounds.
 */
static bool agree_on_contents(struct segment *s, struct warm *w, struct link *link)
{
	struct contents own = {0}, *all = memory_zeroed((size_t)s->world, sizeof(*all));
	bool good = true, done = false, stop = false;

	while (good && !done && !stop) {
		take_contents(s, w, link, &own);
		collectives_gather_all(s->group, all, &own, sizeof(own), w->comm);
		good = segment_sync(s, w);
		done = true;
		for (int i = 0; i < s->world && good; i++) {
			done = done && all[i].done;
			stop = stop || all[i].stop;
		}
	}
	s->cancelled = stop;
	if (stop)
		content_stop(s->content);
	good = good && !stop && compare_contents(s, w, all);
	free(all);
	return good;
}

/* ---- an idle communicator ---- */

/*
 * Switches and firewalls may silently drop a connection that was idle. Nothing of the segment has
 * started: if these engines end without a report about it, gpt2d gives it to the next ones.
 */
static bool fail_silently(struct segment *s, struct link *link)
{
	link_log(link, "warning", "the communicator was idle and does not answer: %s",
		s->failure.message);
	s->failure.silent = true;
	return false;
}

static bool test_communicator(
	struct segment *s, struct warm *w, const struct agreement *all, struct link *link)
{
	const int64_t begin_ns = clock_mono_ns();
	bool idle = false;

	for (int i = 0; i < s->world; i++)
		idle = idle || all[i].idle;
	if (!idle)
		return true;
	collectives_barrier(s->group, w->comm);
	if (segment_sync(s, w)) {
		metrics_log_add(&s->log, "the communicator was idle and answers, after %.3f ms",
			(double)(clock_mono_ns() - begin_ns) / 1e6);
		return true;
	}
	return fail_silently(s, link);
}

/* ---- in order ---- */

bool agreement_reach(struct segment *s, struct warm *w, bool prepared, struct link *link)
{
	struct agreement own, *all;
	bool agreed, several;

	if (s->world < 1 || s->world > w->world || w->rank >= s->world)
		return false;
	if (s->world == 1) {
		prepared = prepared && join(s, w);
		fill_agreement(s, w, prepared, &own);
		return prepared && tune_together(s, w, &own, link);
	}
	all = memory_zeroed((size_t)s->world, sizeof(*all));
	if (collectives_group(w->collectives, s->world, &s->group)) {
		free(all);
		return no_group(s, w);
	}
	several = nodes_count(w->nodes, s->world) > 1;
	/* before, so that all ranks notice a rank without memory for its events */
	prepared = prepared && join(s, w);
	fill_agreement(s, w, prepared, &own);
	if (several && !own.idle)
		collectives_set_timeout(w->collectives, READY_NS);
	collectives_gather_all(s->group, all, &own, sizeof(own), w->comm);
	agreed = segment_sync(s, w) || (own.idle && fail_silently(s, link));
	collectives_set_timeout(w->collectives, 0);
	agreed = agreed && test_communicator(s, w, all, link) &&
		compare_agreements(s, w, all, prepared) &&
		(!several || (agree_on_contents(s, w, link) && segment_save_visible(s, w))) &&
		tune_together(s, w, all, link);
	free(all);
	return agreed;
}

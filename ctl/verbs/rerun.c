/* gpt2ctl rerun: submit the spec of a run again, as a new run. */
#include <stdlib.h>
#include <string.h>

#include "ctl/verbs/submit.h"
#include "ctl/verbs/verb.h"
#include "proto/spec/spec.h"

/* ---- the three batch sizes; a stored spec has all of them ---- */

enum { SIZE_BATCH = 1, SIZE_STEPS = 2, SIZE_MICRO = 4 };

static const struct {
	const char *key;
	int size;
} sizes[] = {
	{"train_batch_size", SIZE_BATCH},
	{"gradient_accumulation_steps", SIZE_STEPS},
	{"train_micro_batch_size_per_gpu", SIZE_MICRO},
};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* The size that KEY=VALUE sets, 0: none. *arm: the name of its arm (NULL: the whole spec). */
static int size_of(const char *set, const char **arm, size_t *arm_bytes)
{
	const char *path = set, *key;
	const size_t n = strcspn(set, "=");

	*arm = NULL;
	for (size_t i = 0; i < SIZES; i++) {
		const size_t bytes = strlen(sizes[i].key);

		key = n >= bytes ? path + n - bytes : path;
		if (n < bytes || strncmp(key, sizes[i].key, bytes) != 0)
			continue;
		if (key == path)
			return sizes[i].size;
		if (strncmp(path, "arms.", 5) != 0 || key - path < 7 || key[-1] != '.')
			continue;
		*arm = path + 5;
		*arm_bytes = (size_t)(key - path) - 6;
		return sizes[i].size;
	}
	return 0;
}

/* The size that must be computed from those that are set; NULL: none. */
static const char *size_to_forget(int set)
{
	for (size_t i = 0; set != 0 && i < SIZES; i++)
		if ((set & sizes[i].size) == 0)
			return sizes[i].key;
	return NULL;
}

/* If one size has a new value, the size that the author did not give must be computed again. */
static void forget_size(json_t *spec, const struct options *args)
{
	size_t n, bytes;
	const char **sets = options_all(args, "set", &n);
	const char *arm, *forgotten;
	int set = 0;

	for (size_t i = 0; i < n; i++)
		set |= size_of(sets[i], &arm, &bytes);
	forgotten = size_to_forget(set);
	if (forgotten)
		json_object_del(spec, forgotten);
	for (size_t i = 0; i < n && forgotten; i++) {
		char name[256];

		if (size_of(sets[i], &arm, &bytes) == 0 || arm == NULL || bytes >= sizeof(name))
			continue;
		memcpy(name, arm, bytes);
		name[bytes] = '\0';
		json_object_del(json_object_get(json_object_get(spec, "arms"), name), forgotten);
	}
	free(sets);
}

/* ---- the spec ---- */

/* The stored spec of a run: its text, the caller's, or NULL with e. */
static char *stored_spec(
	struct ctl *ctl, const struct options *args, int64_t id, struct ctl_error *e)
{
	json_t *params = json_pack("{s:I, s:i}", "id", (json_int_t)id, "limit", 1), *reply;
	char *text;

	if (client_ask(&ctl->link, METHOD_SHOW, params, &reply, e) != 0)
		return NULL;
	forget_size(json_object_get(reply, "spec"), args);
	text = json_dumps(json_object_get(reply, "spec"), JSON_INDENT(1));
	json_decref(reply);
	if (text == NULL)
		ctl_error_set(e, CTL_TRANSPORT, "run %lld: gpt2d sent no spec", (long long)id);
	return text;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	struct spec_source source = {.args = args};
	char name[40], *text;
	int exit = submit_check(ctl, args, e);

	if (exit)
		return exit;
	if (verb_parse_id(args->words[0], &source.rerun_of, e) != 0)
		return e->exit;
	text = stored_spec(ctl, args, source.rerun_of, e);
	if (text == NULL)
		return e->exit;
	snprintf(name, sizeof(name), "run %lld", (long long)source.rerun_of);
	source.name = name;
	source.text = text;
	source.n = strlen(text);
	exit = submit_send(ctl, &source, e);
	free(text);
	return exit;
}

const struct verb verb_rerun = {
	.name = "rerun",
	.args = "ID",
	.min_args = 1,
	.max_args = 1,
	.summary = "submit the spec of a run again, as a new run",
	.text = "The spec is the one that gpt2d has stored, with its data paths. It has all three "
		"batch sizes. If --set gives gradient_accumulation_steps or "
		"train_micro_batch_size_per_gpu, gpt2ctl computes train_batch_size again; if it "
		"gives train_batch_size, gpt2ctl computes the accumulation steps again. With "
		"another gpus, set train_batch_size too: keep its value to change the accumulation "
		"steps. show prints which run a run repeats.",
	.options = submit_options + SUBMIT_OWN_OPTIONS,
	.run = run,
};

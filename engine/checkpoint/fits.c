#include "engine/checkpoint/fits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/host/memory.h"

#define HASH_WAIT_NS (20 * CLOCK_S_NS)

/* The newest one in a folder of checkpoints; NULL: none. */
static char *newest_in(const char *folder)
{
	int64_t *steps = NULL;
	char *dir = NULL;

	if (checkpoint_list(folder, &steps) > 0)
		dir = memory_printed("%s/" CHECKPOINT_STEP "%" PRId64, folder, steps[0]);
	free(steps);
	return dir;
}

static int open_manifest(
	const char *dir, const struct data_roots *roots, char *error, size_t error_bytes)
{
	char *manifest = memory_printed("%s/" CHECKPOINT_MANIFEST, dir);
	int fd = data_roots_open(roots, manifest, error, error_bytes);

	free(manifest);
	return fd;
}

static int find_path(const char *path, const struct data_roots *roots, char **dir, char *error,
	size_t error_bytes)
{
	int fd, rc;

	if (roots->n > 0) {
		fd = data_roots_open(roots, path, error, error_bytes);
		if (fd < 0)
			return fd;
		close(fd);
	}
	rc = checkpoint_find(path, dir, error, error_bytes);
	if (rc < 0)
		return rc;
	/* the folder of the step may be a link */
	fd = roots->n > 0 ? open_manifest(*dir, roots, error, error_bytes) : -1;
	if (roots->n > 0 && fd < 0) {
		free(*dir);
		*dir = NULL;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return 0;
}

/* Where the segments of the run are that would have checkpoints in folder; NULL: not known. */
static char *segments_of(const char *folder)
{
	const char *end = folder ? strrchr(folder, '/') : NULL;

	return end ? memory_printed("%.*s/segments", (int)(end - folder), folder) : NULL;
}

int fits_find(const struct spec_config *config, const json_t *folders,
	const struct data_roots *roots, char **dir, char *error, size_t error_bytes)
{
	const char *from = config->resume_from;
	const json_t *folder;
	char *segments;
	size_t i;

	if (!spec_run_id(from))
		return find_path(from, roots, dir, error, error_bytes);
	*dir = NULL;
	json_array_foreach(folders, i, folder)
		if (!*dir && json_is_string(folder))
			*dir = newest_in(json_string_value(folder));
	if (*dir)
		return 0;
	segments = segments_of(json_string_value(json_array_get(folders, 0)));
	if (segments && access(segments, F_OK) == 0)
		snprintf(error, error_bytes,
			"run %s is an experiment: give the path of a segment's folder, below %s",
			from, segments);
	else
		snprintf(error, error_bytes,
			"run %s has no checkpoint (checkpoint.at_end in its spec writes one)",
			from);
	free(segments);
	return -ENOENT;
}

/* A member that must be equal; key: of the spec. */
struct same {
	const char *member, *key;
	int64_t value;
};

static void print_value(const json_t *like, int64_t value, char out[32])
{
	if (json_is_boolean(like))
		snprintf(out, 32, "%s", value ? "true" : "false");
	else
		snprintf(out, 32, "%" PRId64, value);
}

static int check_same(const struct checkpoint *c, const json_t *object, const struct same *same,
	size_t n, char *error, size_t error_bytes)
{
	for (size_t i = 0; i < n; i++) {
		const json_t *value = json_object_get(object, same[i].member);
		const int64_t found =
			json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
		char was[32], is[32];

		if (found == same[i].value)
			continue;
		print_value(value, found, was);
		print_value(value, same[i].value, is);
		snprintf(error, error_bytes,
			"%s: written with %s %s, this run has %s (a resumed run needs the same)",
			c->dir, same[i].key, was, is);
		return -EINVAL;
	}
	return 0;
}

int fits_config(const struct checkpoint *c, const struct spec_config *config,
	int64_t train_sequences, char *error, size_t error_bytes)
{
	const struct spec_model *m = &config->model;
	const json_t *top = c->manifest, *model = json_object_get(top, "model");
	const char *gelu = json_string_value(json_object_get(model, "gelu"));
	const char *own = m->gelu == SPEC_GELU_EXACT ? "exact" : "tanh";
	const struct same shape[] = {
		{"n_layer", "model.n_layer", m->n_layer},
		{"n_head", "model.n_head", m->n_head},
		{"n_embd", "model.n_embd", m->n_embd},
		{"vocab_size", "model.vocab_size", m->vocab_size},
		{"n_positions", "model.n_positions", m->n_positions},
		{"tied_head", "model.tied_head", m->tied_head},
	};
	const struct same work[] = {
		{"seq_len", "seq_len", config->seq_len},
		{"train_batch_size", "train_batch_size", config->batch},
		{"train_sequences", "sequences in the training data", train_sequences},
	};
	const struct same seed = {"seed", "seed", config->seed};
	int rc = check_same(c, model, shape, 6, error, error_bytes);

	if (rc == 0 && strcmp(gelu ? gelu : "", own) != 0) {
		snprintf(error, error_bytes,
			"%s: written with model.gelu \"%.16s\", this run has \"%s\" (a resumed run "
			"needs the same)",
			c->dir, gelu ? gelu : "", own);
		rc = -EINVAL;
	}
	if (rc == 0)
		rc = check_same(c, top, work, train_sequences > 0 ? 3 : 2, error, error_bytes);
	if (rc == 0)
		rc = check_same(c, json_object_get(top, "state"), &seed, 1, error, error_bytes);
	if (rc == 0 && config->optimizer_steps > 0 && c->step >= config->optimizer_steps) {
		snprintf(error, error_bytes,
			"%s: has %" PRId64 " optimizer steps, and work is %" PRId64
			" in all: there is nothing left to train (work counts from the first step)",
			c->dir, c->step, config->optimizer_steps);
		rc = -EALREADY;
	}
	return rc;
}

int fits_data(const struct checkpoint *c, const struct dataset *train, struct content *content,
	char *error, size_t error_bytes)
{
	const json_t *files = json_object_get(c->manifest, "data");
	const char *was = json_string_value(json_object_get(c->manifest, "train_sha256"));
	const char *now = NULL;

	/* made-up data follows from what fits_config compares */
	if (train->format == DATASET_SYNTHETIC && json_object_size(files) == 0)
		return 0;
	if (json_object_get(files, train->path) &&
		dataset_identity_check(files, train, error, error_bytes) == 0)
		return 0;
	if (was && content_wait_for(content, HASH_WAIT_NS))
		now = content_train(content);
	if (now && strcmp(was, now) == 0)
		return 0;
	if (now)
		snprintf(error, error_bytes,
			"%s was written while training on other data (SHA-256 %.12s, now %s has "
			"%.12s)",
			c->dir, was, train->path, now);
	else
		snprintf(error, error_bytes,
			"%s is not the file that it was when %s was written, and their contents "
			"could not be compared",
			train->path, c->dir);
	return now ? -ESTALE : -ENODATA;
}

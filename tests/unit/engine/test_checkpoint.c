/*
 * Steps, a checkpoint, and more steps are the same training as all of them without a break: bit for
 * bit on the ranks, stage and buckets that wrote it, to 1e-5 on others; with dropout, accumulation,
 * a warm-up of the learning rate and a loss scale that has moved. The saved steps go on beside the
 * thread that writes. A damaged shard is named, and only so many checkpoints stay.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>

#include "engine/checkpoint/fits.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/restore.h"
#include "engine/checkpoint/saver.h"
#include "engine/checkpoint/shard.h"
#include "proto/artifact.h"
#include "proto/host/clock.h"
#include "tests/unit/engine/tiny.h"
#include "tests/unit/test.h"

enum { STEPS = 10, SAVED = 5, BATCH = 16, MICRO = 4, JOBS_MAX = 24 };

static const double TOLERANCE = 1e-5;

/* A training: from its first step, or from the checkpoint in `from`; saved to `to` after SAVED. */
struct job {
	int64_t stage, bucket;
	bool fp16_rules;
	const char *from, *to;
};

struct outcome {
	double loss[STEPS], lr[STEPS], scale[STEPS];
	uint64_t hash; /* of the parameters, the same on all ranks */
	int64_t disagree, lost;
};

struct jobs {
	int world, n;
	char root[64];
	struct job job[JOBS_MAX];
	struct outcome outcome[JOBS_MAX];
};

static int open_newest(const char *path, struct checkpoint **out, char *error, size_t error_bytes)
{
	char *dir = NULL;
	int rc = checkpoint_find(path, &dir, error, error_bytes);

	if (rc == 0)
		rc = checkpoint_open(dir, out, error, error_bytes);
	free(dir);
	return rc;
}

static struct spec_config make_config(const struct job *job, int world)
{
	/* the masks of dropout are a function of the micro-batch */
	struct spec_config c = tiny_config(world, BATCH / MICRO / world, MICRO);

	c.model.dropout = 0.1;
	c.zero_stage = job->stage;
	c.reduce_bucket_elems = c.allgather_bucket_elems = job->bucket;
	c.optimizer_steps = STEPS;
	c.schedule = SPEC_WARMUP_DECAY_LR;
	c.warmup_max_lr = 3e-3;
	c.warmup_num_steps = 4;
	c.total_num_steps = 20;
	return c;
}

/* The rules of the scale alone: powers of two cost fp32 no bits. */
static void begin_scale(struct training *t)
{
	t->step.scale = (struct loss_scale){.dynamic = true,
		.scale = 1024,
		.min = 1,
		.window = 3,
		.last_overflow = -1,
		.hysteresis = 2,
		.hysteresis_left = 2};
}

static void log_nothing(void *arg, const char *level, const char *text)
{
	int64_t *lost = arg;

	*lost += strcmp(level, "info") != 0;
	if (strcmp(level, "info") != 0)
		fprintf(stderr, "%s\n", text);
}

static json_t *begin_manifest(const struct training *t)
{
	json_t *data = json_object(), *begun;
	const struct manifest_head head = {
		.run = 1,
		.attempt = 1,
		.segment = 1,
		.name = "tiny",
		.arm = "run",
		.spec_text = "{}",
		.spec_sha256 = "0",
		.data = data,
		.train_sequences = 511,
		.config = t->config,
		.arena = &t->arena,
		.plan = &t->plan,
	};

	begun = manifest_begin(&head);
	json_decref(data);
	return begun;
}

static int begin_saver(struct saver *saver, struct training *t, struct collectives_group *group,
	const char *folder, int64_t keep, int64_t *lost)
{
	const struct saver_segment segment = {
		.training = t,
		.group = group,
		.folder = folder,
		.keep = keep,
		.manifest = t->warm->rank == 0 ? begin_manifest(t) : NULL,
		.log = log_nothing,
		.arg = lost,
	};

	return saver_begin(saver, &segment);
}

static int finish_saver(struct saver *saver, struct saver_made *made)
{
	int rc = 0;

	while (saver_pending(saver) && rc == 0) {
		saver_wait(saver, CLOCK_MS_NS);
		rc = saver_poll(saver);
	}
	while (!saver_idle(saver))
		saver_wait(saver, CLOCK_S_NS);
	saver_end(saver, made);
	return rc;
}

static int load(struct training *t, const char *from, char *error, size_t n)
{
	struct checkpoint *c = NULL;
	int rc = open_newest(from, &c, error, n);

	if (rc == 0)
		rc = fits_config(c, t->config, 511, error, n);
	if (rc == 0)
		rc = restore_load(t, c, error, n);
	if (rc == 0)
		restore_finish(t, c);
	if (rc == 0 && t->step.scale.dynamic) {
		t->step.scale.scale = c->state.loss_scale;
		t->step.scale.it = c->state.scale_it;
		t->step.scale.last_overflow = c->state.last_overflow;
		t->step.scale.hysteresis_left = c->state.hysteresis_left;
	}
	checkpoint_close(c);
	return rc;
}

static void compare_params(struct training *t, struct collectives_group *group, struct outcome *out)
{
	struct warm *w = t->warm;
	uint64_t hashes[RANKS_MAX] = {0}, own;

	zero_drain(&w->zero);
	k_stream_sync(w->compute, INT64_MAX);
	own = tiny_hash(t->model.params, t->plan.param_elems * t->elem_bytes);
	hashes[0] = own;
	if (group) {
		collectives_gather_all(group, hashes, &own, sizeof(own), w->comm);
		k_stream_sync(w->comm, INT64_MAX);
	}
	out->hash = own;
	for (int r = 0; r < w->world; r++)
		out->disagree += hashes[r] != hashes[0];
}

static int train(struct training *t, struct saver *saver, const struct job *job,
	struct outcome *out, char *error, size_t n)
{
	bool saves = job->to != NULL;
	int rc = 0;

	while (t->step.attempted < STEPS && rc == 0) {
		const int64_t step = t->step.attempted;
		struct step_result r;

		rc = step_run(&t->step, false, &r, error, n);
		if (rc)
			break;
		out->loss[step] = r.measure.loss;
		out->lr[step] = r.measure.lr;
		out->scale[step] = r.measure.loss_scale;
		if (job->fp16_rules)
			loss_scale_update(&t->step.scale, false);
		if (saves && saver_pending(saver))
			rc = saver_poll(saver);
		if (rc == 0 && saves && t->step.attempted == SAVED)
			rc = saver_save(saver, error, n);
	}
	return rc;
}

static int run_job(struct warm *w, struct collectives_group *group, struct saver *saver,
	const struct job *job, struct outcome *out)
{
	struct spec_config config = make_config(job, w->world);
	struct training t;
	struct dataset data;
	struct saver_made made = {0};
	char error[1024] = "";
	int rc = tiny_open(&t, &data, w, group, &config);

	if (rc)
		return rc;
	if (job->to)
		rc = begin_saver(saver, &t, group, job->to, 2, &out->lost);
	training_reset(&t);
	if (job->fp16_rules)
		begin_scale(&t);
	if (rc == 0 && job->from)
		rc = load(&t, job->from, error, sizeof(error));
	if (rc == 0)
		rc = train(&t, saver, job, out, error, sizeof(error));
	if (rc == 0 && job->to)
		rc = finish_saver(saver, &made);
	if (rc == 0)
		compare_params(&t, group, out);
	if (w->rank == 0 && job->to && made.written != 1)
		rc = -EIO;
	if (rc)
		fprintf(stderr, "rank %d: %d: %s\n", w->rank, rc, error);
	tiny_close(&t, &data);
	return rc;
}

static int run_rank(struct ranks_self *self)
{
	const struct jobs *jobs = self->arg;
	struct saver *saver = NULL;
	struct warm w;
	int rc = tiny_warm(&w, self);

	if (rc == 0)
		rc = saver_create(w.ctx, &saver);
	for (int i = 0; i < jobs->n && !rc; i++) {
		struct outcome out = {0};

		rc = run_job(&w, self->world > 1 ? self->all : NULL, saver, &jobs->job[i], &out);
		if (self->rank == 0)
			memcpy(self->shared + (size_t)i * sizeof(out), &out, sizeof(out));
	}
	saver_destroy(saver);
	warm_finish(&w);
	return rc ? 1 : 0;
}

static void run(struct jobs *jobs, int world)
{
	jobs->world = world;
	assert_int_equal(
		ranks_run_well(world, run_rank, jobs, jobs->outcome, sizeof(jobs->outcome)), 0);
	for (int i = 0; i < jobs->n; i++) {
		assert_int_equal(jobs->outcome[i].disagree, 0);
		assert_int_equal(jobs->outcome[i].lost, 0);
	}
}

/* ---- folders ---- */

static char root[64];

static const char *folder(const char *name)
{
	static char paths[JOBS_MAX * 4][128];
	static int next;
	char *path = paths[next++];

	assert_true(next <= JOBS_MAX * 4);
	snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
	return path;
}

static int make_root(void **state)
{
	snprintf(root, sizeof(root), "/tmp/test_checkpoint.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* ---- the same training ---- */

/* Three jobs: all steps; all steps with a checkpoint; the rest from that one. */
static void add_three(struct jobs *jobs, struct job job, const char *to)
{
	jobs->job[jobs->n++] = job;
	job.to = to;
	jobs->job[jobs->n++] = job;
	job.from = to;
	job.to = NULL;
	jobs->job[jobs->n++] = job;
}

static void check_three(const struct jobs *jobs, int first)
{
	const struct outcome *whole = &jobs->outcome[first];

	for (int i = first + 1; i < first + 3; i++) {
		const struct outcome *o = &jobs->outcome[i];
		const int from = i == first + 2 ? SAVED : 0;

		for (int step = from; step < STEPS; step++) {
			assert_true(o->loss[step] == whole->loss[step]);
			assert_true(o->lr[step] == whole->lr[step]);
			assert_true(o->scale[step] == whole->scale[step]);
		}
		assert_true(o->hash == whole->hash);
	}
}

static void test_same_world(void **state)
{
	static struct jobs jobs;
	const int64_t buckets[] = {1, 1111, 1 << 20};
	char name[64];

	for (int world = 1; world <= 4; world *= 2) {
		jobs.n = 0;
		for (int64_t stage = 0; stage <= 1; stage++)
			for (size_t b = 0; b < 3; b++) {
				const struct job job = {
					.stage = stage, .bucket = buckets[b], .fp16_rules = b == 2};

				snprintf(name, sizeof(name), "w%d-s%d-b%zu", world, (int)stage, b);
				add_three(&jobs, job, folder(name));
			}
		run(&jobs, world);
		for (int i = 0; i < jobs.n; i += 3)
			check_three(&jobs, i);
	}
}

/* What one world wrote another one resumes; also other buckets, and the other stage. */
static void test_other_world(void **state)
{
	static const char *const written[] = {"w1-s0-b2", "w2-s1-b0", "w2-s0-b1", "w4-s1-b1"};
	static struct jobs jobs;
	struct outcome whole;

	jobs.n = 0;
	jobs.job[jobs.n++] = (struct job){.bucket = 1 << 20};
	run(&jobs, 1);
	whole = jobs.outcome[0];
	for (int world = 1; world <= 4; world *= 2) {
		jobs.n = 0;
		for (size_t i = 0; i < 4; i++)
			jobs.job[jobs.n++] = (struct job){.stage = (int64_t)(i % 2),
				.bucket = 700,
				.from = folder(written[i])};
		run(&jobs, world);
		for (int i = 0; i < jobs.n; i++)
			for (int step = SAVED; step < STEPS; step++) {
				const struct outcome *o = &jobs.outcome[i];

				assert_true(o->lr[step] == whole.lr[step]);
				assert_true(
					fabs(o->loss[step] / whole.loss[step] - 1) <= TOLERANCE);
			}
	}
}

/* ---- files ---- */

/* In a world of one, without forking. */
struct alone {
	struct ranks_self self;
	struct warm w;
	struct saver *saver;
	struct training t;
	struct dataset data;
	struct spec_config config;
	int64_t lost;
};

static void begin_alone(struct alone *a)
{
	const struct k_context_options options = {.threads = 1};
	const struct job job = {.stage = 1, .bucket = 700};

	*a = (struct alone){.self = {.world = 1}};
	assert_int_equal(k_context_create(&options, &a->self.ctx), 0);
	assert_int_equal(
		k_stream_create(a->self.ctx, K_STREAM_COMPUTE, "compute", &a->self.compute), 0);
	assert_int_equal(k_stream_create(a->self.ctx, K_STREAM_COMM, "comm", &a->self.comm), 0);
	assert_int_equal(tiny_warm(&a->w, &a->self), 0);
	assert_int_equal(saver_create(a->w.ctx, &a->saver), 0);
	a->config = make_config(&job, 1);
	assert_int_equal(tiny_open(&a->t, &a->data, &a->w, NULL, &a->config), 0);
	training_reset(&a->t);
}

static void finish_alone(struct alone *a)
{
	tiny_close(&a->t, &a->data);
	saver_destroy(a->saver);
	warm_finish(&a->w);
	k_stream_destroy(a->self.compute);
	k_stream_destroy(a->self.comm);
	k_context_destroy(a->self.ctx);
}

static void step_once(struct alone *a)
{
	struct step_result r;
	char error[256];

	assert_int_equal(step_run(&a->t.step, false, &r, error, sizeof(error)), 0);
}

static void save_now(struct alone *a, const char *to, int64_t keep, struct saver_made *made)
{
	char error[256];

	assert_int_equal(begin_saver(a->saver, &a->t, NULL, to, keep, &a->lost), 0);
	assert_int_equal(saver_save(a->saver, error, sizeof(error)), 0);
	assert_int_equal(finish_saver(a->saver, made), 0);
}

static void test_keeps_the_last(void **state)
{
	const char *to = folder("kept");
	struct saver_made made;
	struct alone a;
	int64_t *steps;

	begin_alone(&a);
	for (int i = 0; i < 3; i++) {
		step_once(&a);
		save_now(&a, to, 2, &made);
		assert_int_equal(made.written, 1);
		assert_int_equal(made.last, i + 1);
	}
	assert_int_equal(checkpoint_list(to, &steps), 2);
	assert_int_equal(steps[0], 3);
	assert_int_equal(steps[1], 2);
	free(steps);
	finish_alone(&a);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void test_names_a_damaged_shard(void **state)
{
	const char *to = folder("damaged");
	char path[256], error[1024] = "";
	struct checkpoint *c;
	struct saver_made made;
	struct alone a;

	begin_alone(&a);
	step_once(&a);
	save_now(&a, to, 2, &made);
	snprintf(path, sizeof(path), "%s/step-1/shard-0-of-1.bin", to);
	flip(path, 4001);
	assert_int_equal(open_newest(to, &c, error, sizeof(error)), 0);
	assert_int_equal(restore_load(&a.t, c, error, sizeof(error)), -EBADMSG);
	assert_non_null(strstr(error, "step-1/shard-0-of-1.bin: damaged: section master"));
	checkpoint_close(c);
	flip(path, 4001);
	assert_int_equal(open_newest(to, &c, error, sizeof(error)), 0);
	assert_int_equal(checkpoint_verify(c, CHECKPOINT_V, error, sizeof(error)), 0);
	checkpoint_close(c);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(open_newest(to, &c, error, sizeof(error)), -EBADMSG);
	assert_non_null(strstr(error, "shard-0-of-1.bin: damaged: "));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(open_newest(to, &c, error, sizeof(error)), -ENOENT);
	finish_alone(&a);
}

/* The disk takes nothing: the checkpoint is lost, the one before stays, training continues. */
static void test_loses_what_cannot_be_written(void **state)
{
	const char *to = folder("lost");
	struct saver_made made;
	struct alone a;
	int64_t *steps;
	char path[256];
	FILE *f;

	begin_alone(&a);
	step_once(&a);
	save_now(&a, to, 1, &made);
	step_once(&a);
	/* a file where the folder has to be */
	snprintf(path, sizeof(path), "%s/step-2", to);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	save_now(&a, to, 1, &made);
	assert_int_equal(made.lost, 1);
	assert_int_equal(made.written, 0);
	assert_int_equal(a.lost, 1);
	assert_int_equal(checkpoint_list(to, &steps), 1);
	assert_int_equal(steps[0], 1);
	free(steps);
	step_once(&a);
	finish_alone(&a);
}

static void test_refuses_another_training(void **state)
{
	const char *to = folder("fits");
	char error[1024] = "";
	struct saver_made made;
	struct spec_config other;
	struct checkpoint *c;
	struct alone a;

	begin_alone(&a);
	step_once(&a);
	save_now(&a, to, 2, &made);
	assert_int_equal(open_newest(to, &c, error, sizeof(error)), 0);
	assert_int_equal(fits_config(c, &a.config, 511, error, sizeof(error)), 0);
	other = a.config;
	other.model.n_layer = 3;
	assert_int_equal(fits_config(c, &other, 0, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "model.n_layer 2, this run has 3"));
	other = a.config;
	other.batch = 8;
	assert_int_equal(fits_config(c, &other, 0, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "train_batch_size 16"));
	assert_int_equal(fits_config(c, &a.config, 512, error, sizeof(error)), -EINVAL);
	other = a.config;
	other.optimizer_steps = 1;
	assert_int_equal(fits_config(c, &other, 0, error, sizeof(error)), -EALREADY);
	assert_non_null(strstr(error, "nothing left to train"));
	checkpoint_close(c);
	finish_alone(&a);
}

/* ---- shards ---- */

/* The ranks' shards are the arena once, in any world, stage and plan. */
static void test_shards_cover_the_arena(void **state)
{
	const int64_t sizes[] = {64, 1000 * 64, 12345 * 64};
	char error[256];

	for (size_t i = 0; i < 3; i++)
		for (int world = 1; world <= 8; world++)
			for (int64_t bucket = 1; bucket < 4 << 20; bucket *= 37)
				for (int64_t stage = 0; stage <= 1; stage++) {
					struct plan plan;
					int64_t elems = 0, seen = 0;

					if (plan_make(&plan, sizes[i], world, bucket, 1 << 30,
						    error, sizeof(error)))
						continue;
					for (int rank = 0; rank < world; rank++) {
						struct shard s;

						shard_written(&plan, stage, rank, &s);
						elems += s.elems;
						for (int64_t p = 0; p < s.n_pieces; p++) {
							assert_true(s.pieces[p].n > 0);
							assert_true(
								s.pieces[p].first + s.pieces[p].n <=
								sizes[i]);
							seen += s.pieces[p].first == 0;
						}
						shard_finish(&s);
					}
					assert_int_equal(elems, sizes[i]);
					assert_int_equal(seen, 1);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shards_cover_the_arena),
		cmocka_unit_test(test_same_world),
		cmocka_unit_test(test_other_world), /* reads what test_same_world wrote */
		cmocka_unit_test(test_keeps_the_last),
		cmocka_unit_test(test_names_a_damaged_shard),
		cmocka_unit_test(test_loses_what_cannot_be_written),
		cmocka_unit_test(test_refuses_another_training),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}

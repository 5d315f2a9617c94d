#include "engine/check/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/checkpoint/fits.h"
#include "engine/checkpoint/gpt2_weights.h"
#include "engine/train/activations.h"
#include "engine/train/arena.h"
#include "engine/report/measure.h"
#include "engine/train/plan.h"
#include "proto/size.h"
#include "proto/spec/spec_json.h"
#include "proto/spec/spec_table.h"

#define INT(value) ((json_int_t)(value))

static const int64_t STEP_TIMES_BYTES_MAX = INT64_C(4) << 30;
enum { MARK_BYTES = 144 }; /* an event of the CPU, its allocation and its entry in timeline.h */

/* The abilities of an engine; the precisions are a set of 1 << value. */
static const struct backend {
	const char *name;
	unsigned precisions;
	bool shared_memory; /* ranks share one machine's memory, instead of a device for each */
} backends[] = {
	{"cpu", 1U << SPEC_FP32, true},
	{"cuda", 1U << SPEC_FP32 | 1U << SPEC_TF32 | 1U << SPEC_BF16 | 1U << SPEC_FP16, false},
};

static const char *const precision_keys[] = {[SPEC_FP32] = "fp32",
	[SPEC_TF32] = "tf32",
	[SPEC_BF16] = "bf16.enabled",
	[SPEC_FP16] = "fp16.enabled"};

/* The check in progress. */
struct checking {
	const struct check_options *options;
	const struct spec_config *config;
	const struct backend *backend;
	json_t *errors, *check, *warnings;
	struct arena arena;
	struct plan plan;
	bool planned;
	int64_t elem_bytes, train_sequences; /* 0: not known */
};

static void refuse(struct checking *k, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void refuse(struct checking *k, const char *key, const char *format, ...)
{
	char message[SPEC_PATH_MAX + 512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	json_array_append_new(k->errors, json_pack("{s:s, s:s}", "key", key, "message", message));
}

static void warn(struct checking *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn(struct checking *k, const char *format, ...)
{
	char message[SPEC_PATH_MAX + 512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	json_array_append_new(k->warnings, json_string(message));
}

/* ---- abilities of the engine ---- */

static void check_backend(struct checking *k)
{
	const struct spec_config *c = k->config;
	const char *name = k->options->device.backend;
	/* gradients are stored and reduced in the compute type */
	enum spec_precision reduced = c->precision == SPEC_TF32 ? SPEC_FP32 : c->precision;
	size_t i;

	for (i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (strcmp(backends[i].name, name) == 0)
			k->backend = &backends[i];
	}
	if (k->backend == NULL) {
		refuse(k, "", "engine: device %s: no checks are known", name);
		return;
	}
	if ((k->backend->precisions & 1U << c->precision) == 0)
		refuse(k, precision_keys[c->precision],
			"the %s engine computes in fp32, not in %s; set %s to false", name,
			spec_precision_name(c->precision), precision_keys[c->precision]);
	else if (c->grad_dtype != reduced)
		refuse(k, "grad_dtype", "the %s engine reduces %s gradients in %s, not in %s", name,
			spec_precision_name(c->precision), spec_precision_name(reduced),
			spec_precision_name(c->grad_dtype));
}

static void check_stage(struct checking *k)
{
	if (k->config->zero_stage > 1)
		refuse(k, "zero_optimization.stage",
			"no engine can run stage %" PRId64 " yet (expected 0 or 1)",
			k->config->zero_stage);
}

static void check_world(struct checking *k)
{
	const struct spec_config *c = k->config;

	if (c->gpus > k->options->world)
		refuse(k, "gpus", "%" PRId64 " ranks requested, %d available", c->gpus,
			k->options->world);
	json_object_set_new(k->check, "batch",
		json_pack("{s:I, s:I, s:I, s:I}", "train_micro_batch_size_per_gpu",
			INT(c->micro_batch), "gradient_accumulation_steps", INT(c->accumulation),
			"world", INT(c->gpus), "train_batch_size", INT(c->batch)));
}

/*
 * DeepSpeed accepts an lr beside a schedule that replaces it, and a falling rate: both are allowed,
 * and both are seldom intended. A resolved spec has the default lr, which nobody set.
 */
static void check_schedule(struct checking *k)
{
	const struct spec_choice *schedules = spec_table[SPEC_KEY_SCHEDULER_TYPE].choices;
	const struct spec_config *c = k->config;
	char low[SPEC_JSON_REAL_BYTES], high[SPEC_JSON_REAL_BYTES], lr[SPEC_JSON_REAL_BYTES];

	if (c->total_num_steps > 0 && c->optimizer_steps > c->total_num_steps)
		warn(k,
			"scheduler.params.total_num_steps: the schedule ends after %" PRId64
			" of %" PRId64 " optimizer steps: the rate stays at its final value",
			c->total_num_steps, c->optimizer_steps);
	if (c->schedule != SPEC_WARMUP_LR && c->schedule != SPEC_WARMUP_DECAY_LR)
		return;
	spec_json_format_real(c->warmup_max_lr, high);
	spec_json_format_real(c->lr, lr);
	if (strcmp(lr, high) != 0 && strcmp(lr, spec_table[SPEC_KEY_LR].fallback) != 0)
		warn(k,
			"optimizer.params.lr: %s has no effect, the rate is that of scheduler.type "
			"\"%s\", whose warmup_max_lr is %s",
			lr, spec_table_choice(schedules, (int)c->schedule), high);
	if (c->warmup_min_lr <= c->warmup_max_lr)
		return;
	spec_json_format_real(c->warmup_min_lr, low);
	warn(k,
		"scheduler.params.warmup_min_lr: %s is above warmup_max_lr %s: the rate falls "
		"during the warm-up",
		low, high);
}

/* ---- plan ---- */

/* plan_make's message is "key: text". */
static void refuse_plan(struct checking *k, const char *message)
{
	const char *text = strchr(message, ' ');
	char key[64];

	if (text == NULL || text[-1] != ':') {
		refuse(k, "zero_optimization", "%s", message);
		return;
	}
	snprintf(key, sizeof(key), "zero_optimization.%.*s", (int)(text - 1 - message), message);
	refuse(k, key, "%s", text + 1);
}

/* Number of the run's ranks that share one memory. */
static int64_t ranks_together(const struct checking *k)
{
	if (!k->backend || !k->backend->shared_memory)
		return 1;
	return k->options->together > 0 ? k->options->together : k->config->gpus;
}

/* No bucket size helps if parameters and gradients alone exceed the memory. */
static bool refuse_model(struct checking *k)
{
	const struct memory_device *o = &k->options->device;
	const int64_t ranks = ranks_together(k);
	const int64_t bytes = 2 * k->arena.param_elems * k->elem_bytes;
	char needed[SIZE_BYTES], available[SIZE_BYTES];

	if (o->total_bytes <= 0 || bytes <= o->total_bytes / ranks)
		return false;
	refuse(k, "model",
		"memory: %" PRId64 " parameters and their gradients alone take %s a rank, "
		"%s available%s: a smaller model is needed",
		k->arena.model_params, size_text(bytes, needed),
		size_text(o->total_bytes, available), ranks > 1 ? " to all ranks together" : "");
	return true;
}

static void check_plan(struct checking *k)
{
	const struct spec_config *c = k->config;
	const struct plan *p = &k->plan;
	struct plan_traffic t;
	int64_t gather_elems;
	char message[512];

	json_object_set_new(k->check, "model",
		json_pack("{s:I, s:I, s:I}", "parameters", INT(k->arena.model_params),
			"vocab_padded", INT(k->arena.vocab_padded), "param_elems",
			INT(k->arena.param_elems)));
	if (plan_make(&k->plan, k->arena.param_elems, (int)c->gpus, c->reduce_bucket_elems,
		    c->allgather_bucket_elems, message, sizeof(message)) < 0) {
		if (!refuse_model(k))
			refuse_plan(k, message);
		return;
	}
	k->planned = true;
	gather_elems = plan_gathers(p, (int)c->zero_stage) ? p->gather_elems : 0;
	json_object_set_new(k->check, "plan",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			"asked_reduce_elems", INT(c->reduce_bucket_elems), "asked_gather_elems",
			INT(c->allgather_bucket_elems), "reduce_elems", INT(p->reduce_elems),
			"n_reduce", INT(p->n_reduce), "gather_elems", INT(gather_elems), "n_gather",
			INT(gather_elems > 0 ? p->n_gather : 0), "arena_elems", INT(p->arena_elems),
			"elem_bytes", INT(k->elem_bytes), "reduce_bucket_bytes",
			INT(p->reduce_elems * k->elem_bytes), "gather_bucket_bytes",
			INT(gather_elems * k->elem_bytes)));
	t = plan_step_traffic(p, (int)c->zero_stage, c->reduce_scatter);
	json_object_set_new(k->check, "traffic",
		json_pack("{s:I, s:I, s:I}", "reduce_scatter_bytes",
			INT(t.reduce_scatter_elems * k->elem_bytes), "all_gather_bytes",
			INT(t.all_gather_elems * k->elem_bytes), "all_reduce_bytes",
			INT(t.all_reduce_elems * k->elem_bytes)));
}

/* ---- memory ---- */

static struct activations_shape shape_of(const struct checking *k)
{
	return (struct activations_shape){
		.model = &k->config->model,
		.recompute = k->config->recompute,
		.B = k->config->micro_batch,
		.T = k->config->seq_len,
		.elem_bytes = k->elem_bytes,
		.real_bytes = (int64_t)sizeof(float),
	};
}

static void add_up(const struct checking *k, struct memory_plan *n)
{
	const struct spec_config *c = k->config;
	const struct memory_device *o = &k->options->device;
	const struct activations_shape shape = shape_of(k);
	int64_t owned = c->zero_stage == 0 ? k->plan.arena_elems : plan_owned_elems(&k->plan, 0);
	int64_t rows = c->micro_batch * c->seq_len;

	memory_plan_parts(n, &shape, k->plan.arena_elems, owned, k->options->device.scratch);
	/* inputs and targets of a whole step, on the host and on the device; losses */
	n->batch = 4 * c->accumulation * rows * (int64_t)sizeof(int32_t) +
		rows * (int64_t)sizeof(float);
	/* in the same memory: the batch that is read ahead, and a micro-batch's two marks */
	if (k->backend && k->backend->shared_memory)
		n->batch +=
			c->accumulation * (2 * rows * (int64_t)sizeof(int32_t) + 2 * MARK_BYTES);
	n->total = 2 * n->arena + n->master + 2 * n->moment + n->activations + n->logits +
		n->batch + n->scratch + n->branch + o->comm_bytes + o->context_bytes +
		o->tuning_bytes;
	n->ranks = ranks_together(k);
	n->together = n->ranks > 1;
}

static json_t *pack_memory(const struct checking *k, const struct memory_plan *n)
{
	const struct memory_device *o = &k->options->device;
	int64_t with[SPEC_RECOMPUTE_FULL + 1];
	json_t *memory;

	for (int r = SPEC_RECOMPUTE_NONE; r <= SPEC_RECOMPUTE_FULL; r++)
		with[r] = activations_bytes_with(&n->shape, (enum spec_recompute)r) - n->logits;
	memory = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"parameters_bytes", INT(n->arena), "gradients_bytes", INT(n->arena), "master_bytes",
		INT(n->master), "moment_m_bytes", INT(n->moment), "moment_v_bytes", INT(n->moment),
		"activations_bytes", INT(n->activations), "logits_bytes", INT(n->logits),
		"logits_elems", INT(memory_plan_logits_elems(k->config)), "batch_bytes",
		INT(n->batch), "comm_bytes", INT(o->comm_bytes), "total_bytes", INT(n->total),
		"planned_bytes", INT(n->planned), "available_bytes", INT(o->total_bytes),
		"free_bytes", INT(o->free_bytes));
	json_object_update_new(memory,
		json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I}", "scratch_bytes",
			INT(n->scratch), "scratch_branch_bytes", INT(n->branch), "context_bytes",
			INT(o->context_bytes), "tuning_bytes", INT(o->tuning_bytes),
			"activation_checkpointing", spec_recompute_name(n->shape.recompute),
			"activations_none_bytes", INT(with[SPEC_RECOMPUTE_NONE]),
			"activations_selective_bytes", INT(with[SPEC_RECOMPUTE_SELECTIVE]),
			"activations_full_bytes", INT(with[SPEC_RECOMPUTE_FULL])));
	return memory;
}

static void check_memory(struct checking *k)
{
	const struct memory_device *o = &k->options->device;
	const struct spec_config *c = k->config;
	struct memory_plan n;
	char message[SPEC_PATH_MAX + 512];
	const char *key;

	if (memory_plan_beyond_reason(c)) {
		refuse(k, "train_micro_batch_size_per_gpu",
			"a micro-batch of %" PRId64 " x %" PRId64 " tokens, %" PRId64
			" times, takes more than 100 PB",
			c->micro_batch, c->seq_len, c->accumulation);
		return;
	}
	add_up(k, &n);
	if (__builtin_mul_overflow(n.total, n.ranks, &n.planned)) {
		refuse(k, "model", "%" PRId64 " ranks x %" PRId64 " bytes are more than 2^63",
			n.ranks, n.total);
		return;
	}
	json_object_set_new(k->check, "memory", pack_memory(k, &n));
	if (o->total_bytes > 0 && n.planned > o->total_bytes) {
		key = memory_plan_refusal(c, o, &n, message, sizeof(message));
		refuse(k, key, "%s", message);
	} else if (o->free_bytes > 0 && n.planned > o->free_bytes) {
		memory_plan_warning(c, o, &n, message, sizeof(message));
		warn(k, "%s", message);
	}
}

/* ---- data and work ---- */

static const char *format_name(enum dataset_format format)
{
	static const char *const names[] = {[DATASET_RAW] = "raw uint16",
		[DATASET_HEADED] = "llm.c header",
		[DATASET_SYNTHETIC] = "synthetic"};

	return names[format];
}

int64_t check_optimizer_steps(
	const struct spec_config *config, int64_t n_sequences, int64_t *left_over)
{
	int64_t sequences;

	*left_over = 0;
	if (config->work_epochs == 0)
		return config->optimizer_steps;
	if (__builtin_mul_overflow(config->work_epochs, n_sequences, &sequences))
		return 0;
	*left_over = sequences % config->batch;
	return sequences / config->batch;
}

static json_t *pack_data(const struct dataset *d, const struct spec_config *c)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "path", d->path, "format",
		format_name(d->format), "tokens", INT(d->n_tokens), "needed",
		INT(dataset_tokens_needed(c)), "sequences", INT(d->n_sequences), "left_out_tokens",
		INT(d->n_tokens - 1 - d->n_sequences * d->seq_len));
}

/* The key that gives the work. */
static const char *work_key(const struct spec_config *c)
{
	return c->work_micro_steps ? "work.micro_steps"
		: c->work_tokens   ? "work.tokens"
		: c->work_epochs   ? "work.epochs"
				   : "work.optimizer_steps";
}

/* Rank 0 keeps the times of each step, every rank's and the slowest, until the artifacts. */
static void check_step_times(struct checking *k, int64_t steps)
{
	int64_t bytes, each = ((int64_t)k->config->gpus + 2) * (int64_t)sizeof(struct measure_step);

	if (__builtin_mul_overflow(steps, each, &bytes) || bytes > STEP_TIMES_BYTES_MAX)
		refuse(k, work_key(k->config),
			"%" PRId64 " optimizer steps are not allowed, at most %" PRId64
			": their times are kept of each rank (gpus %" PRId64 ")",
			steps, STEP_TIMES_BYTES_MAX / each, k->config->gpus);
}

static void check_work(struct checking *k, const struct dataset *train, json_t *data)
{
	const struct spec_config *c = k->config;
	int64_t left_over, micro_steps, samples, tokens;
	int64_t steps = check_optimizer_steps(c, train->n_sequences, &left_over);

	if (__builtin_mul_overflow(c->work_epochs, train->n_sequences, &samples)) {
		refuse(k, "work.epochs",
			"%" PRId64 " epochs of %" PRId64 " sequences, at most %" PRId64
			" epochs can be counted",
			c->work_epochs, train->n_sequences, INT64_MAX / train->n_sequences);
		return;
	}
	if (steps == 0) {
		refuse(k, "work.epochs",
			"%" PRId64 " epochs of %" PRId64
			" sequences do not fill one batch of %" PRId64,
			c->work_epochs, train->n_sequences, c->batch);
		return;
	}
	if (__builtin_mul_overflow(steps, c->accumulation, &micro_steps) ||
		__builtin_mul_overflow(steps, c->batch, &samples) ||
		__builtin_mul_overflow(samples, c->seq_len, &tokens)) {
		refuse(k, work_key(c), "%" PRId64 " optimizer steps are more than 2^63 tokens",
			steps);
		return;
	}
	if (c->warmup_steps >= steps)
		refuse(k, "work.warmup_steps",
			"%" PRId64 " of %" PRId64 " steps: none is left to be measured",
			c->warmup_steps, steps);
	check_step_times(k, steps);
	if (left_over > 0)
		warn(k,
			"%" PRId64 " epochs leave %" PRId64
			" sequences over that do not fill a batch of %" PRId64,
			c->work_epochs, left_over, c->batch);
	json_object_set_new(
		data, "epochs", json_real((double)samples / (double)train->n_sequences));
	json_object_set_new(k->check, "work",
		json_pack("{s:I, s:I, s:I, s:I}", "optimizer_steps", INT(steps), "micro_steps",
			INT(micro_steps), "tokens", INT(tokens), "left_over_sequences",
			INT(left_over)));
}

static void check_validation(struct checking *k, const struct dataset *val, json_t *data)
{
	const struct spec_config *c = k->config;
	int64_t samples;

	if (__builtin_mul_overflow(c->validation_steps, SPEC_VALIDATION_SEQUENCES, &samples)) {
		refuse(k, "work.validation_steps", "%" PRId64 " steps are more than 2^63 sequences",
			c->validation_steps);
		return;
	}
	json_object_set_new(data, "passes", json_real((double)samples / (double)val->n_sequences));
	if (samples > val->n_sequences)
		warn(k,
			"%s: validation reads %" PRId64 " sequences, the file has %" PRId64
			": some count more than once",
			val->path, samples, val->n_sequences);
}

static bool is_refused(const struct checking *k, const char *key)
{
	const json_t *error;
	size_t i;

	json_array_foreach(k->errors, i, error) {
		if (strcmp(json_string_value(json_object_get(error, "key")), key) == 0)
			return true;
	}
	return false;
}

/*
 * Too few made-up tokens. Their number is an optional key, so the error is for the key that needs
 * them, and omitted if the batch is refused, which is the cause.
 */
static void refuse_made_up(struct checking *k, const char *message)
{
	const char *standard = spec_table[SPEC_KEY_DATA_SYNTHETIC_TOKENS].fallback;

	if (k->config->data_synthetic_tokens != strtoll(standard, NULL, 10))
		refuse(k, "data.synthetic_tokens", "%s", message);
	else if (!is_refused(k, "train_micro_batch_size_per_gpu") && !is_refused(k, "seq_len"))
		refuse(k, "data.kind", "%s; data.synthetic_tokens sets how many are made", message);
}

/* One of the two files; only its first error is reported. */
static void check_file(struct checking *k, json_t *data, bool validation)
{
	const bool made_up = k->config->data_kind == SPEC_DATA_SYNTHETIC;
	const char *key = made_up ? "data.synthetic_tokens"
		: validation      ? "data.val"
				  : "data.train";
	char message[SPEC_PATH_MAX + 256];
	struct dataset d;
	json_t *entry;

	if (dataset_open_below(&d, k->config, validation, &k->options->data_roots, message,
		    sizeof(message)) < 0) {
		/* as many made-up tokens as for training: already reported there */
		if (!made_up)
			refuse(k, key, "%s", message);
		else if (!validation ||
			k->config->data_synthetic_tokens >= dataset_tokens_needed(k->config))
			refuse_made_up(k, message);
		return;
	}
	entry = pack_data(&d, k->config);
	json_object_set_new(data, validation ? "val" : "train", entry);
	if (!validation)
		k->train_sequences = d.n_sequences;
	if (dataset_scan(&d, k->options->cache, message, sizeof(message)) < 0)
		refuse(k, key, "%s", message);
	if (validation)
		check_validation(k, &d, entry);
	else
		check_work(k, &d, entry);
	dataset_close(&d);
}

static void check_data(struct checking *k)
{
	const struct spec_config *c = k->config;
	json_t *data = json_object();

	json_object_set_new(k->check, "data", data);
	check_file(k, data, false);
	if (c->data_val[0] != '\0' || c->validation_steps > 0)
		check_file(k, data, true);
}

/* The file with the initial parameters. */
static void check_init(struct checking *k)
{
	struct gpt2_weights weights;
	char message[SPEC_PATH_MAX + 512];

	if (k->config->init_safetensors[0] == '\0')
		return;
	if (gpt2_weights_open(&weights, &k->arena, k->config->init_safetensors,
		    &k->options->data_roots, message, sizeof(message)))
		refuse(k, "init_from.safetensors", "%s", message);
	else
		gpt2_weights_close(&weights);
}

/* ---- checkpoints ---- */

static void check_room(struct checking *k, int64_t bytes)
{
	const struct spec_config *c = k->config;
	const char *folder = c->checkpoint_dir[0] ? c->checkpoint_dir : k->options->runs;
	char needed[SIZE_BYTES], there[SIZE_BYTES];
	struct statvfs fs;
	struct stat st;
	int64_t left;

	if (c->checkpoint_dir[0] && stat(folder, &st) < 0)
		refuse(k, "checkpoint.dir", "%s: %s", folder, strerror(errno));
	else if (c->checkpoint_dir[0] && !S_ISDIR(st.st_mode))
		refuse(k, "checkpoint.dir", "%s: not a folder", folder);
	else if (c->checkpoint_dir[0] && access(folder, W_OK | X_OK) < 0)
		refuse(k, "checkpoint.dir", "%s: gpt2d cannot write there: %s", folder,
			strerror(errno));
	if (!folder)
		return;
	if (statvfs(folder, &fs) < 0) {
		if (!c->checkpoint_dir[0])
			refuse(k, "checkpoint",
				"%s: %s: the ranks of all nodes write checkpoints there. Set "
				"checkpoint.dir to a folder that all nodes share",
				folder, strerror(errno));
		return;
	}
	left = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (left < bytes)
		warn(k,
			"checkpoint.keep_last %" PRId64 ": %s are needed for these and one more, "
			"and %s has %s left: checkpoints that do not fit are lost",
			c->checkpoint_keep, size_text(bytes, needed), folder,
			size_text(left, there));
}

/* Whether the folder is the same one on all nodes: an equal name is not enough. */
static void check_shared(struct checking *k)
{
	const char *probe = k->options->probe, *dir = k->config->checkpoint_dir;
	const char *key = dir[0] ? "checkpoint.dir" : "checkpoint";

	if (probe == NULL || is_refused(k, key) || access(probe, F_OK) == 0)
		return;
	refuse(k, key,
		"%s: is not the folder of that name on node 0, whose file %s is not here: %s. Set "
		"checkpoint.dir to a folder that all nodes share",
		dir[0] ? dir : k->options->runs, probe, strerror(errno));
}

static void check_checkpoint(struct checking *k)
{
	const struct spec_config *c = k->config;
	const int64_t bytes = k->arena.param_elems * CHECKPOINT_ELEM_BYTES * CHECKPOINT_SECTIONS;
	const int64_t kept = c->checkpoint_keep < INT64_C(1) << 20 ? c->checkpoint_keep : 0;

	if (!spec_checkpoints(c))
		return;
	json_object_set_new(k->check, "checkpoint",
		json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)bytes, "disk_bytes",
			(json_int_t)((kept + 1) * bytes), "host_bytes",
			(json_int_t)(bytes / (c->gpus ? c->gpus : 1))));
	if (k->options->submit && !memory_plan_beyond_reason(c))
		check_room(k, (kept + 1) * bytes);
	check_shared(k);
}

static void check_resume(struct checking *k)
{
	char error[SPEC_PATH_MAX + 512], *dir = NULL;
	struct checkpoint *c = NULL;
	int rc;

	if (!k->options->submit || !k->config->resume_from[0])
		return;
	rc = fits_find(
		k->config, k->options->resume, &k->options->data_roots, &dir, error, sizeof(error));
	if (rc == 0)
		rc = checkpoint_open(dir, &c, error, sizeof(error));
	if (rc == 0)
		rc = fits_config(c, k->config, k->train_sequences, error, sizeof(error));
	if (rc != 0)
		refuse(k, "resume_from", "%s", error);
	checkpoint_close(c);
	free(dir);
}

int check_find_arm(const struct spec *spec, const char *name)
{
	for (size_t i = 0; name != NULL && i < spec->n_arms; i++)
		if (strcmp(spec->arms[i].name, name) == 0)
			return (int)i;
	return -1;
}

void check_run(const struct check_options *options, json_t **errors, json_t **check)
{
	struct checking k = {
		.options = options,
		.config = options->config,
		.errors = json_array(),
		.check = json_object(),
		.warnings = json_array(),
	};

	k.elem_bytes = k.config->precision == SPEC_BF16 || k.config->precision == SPEC_FP16 ? 2 : 4;
	arena_init(&k.arena, &k.config->model);
	check_backend(&k);
	check_stage(&k);
	check_world(&k);
	check_schedule(&k);
	check_plan(&k);
	if (k.planned)
		check_memory(&k);
	check_data(&k);
	check_init(&k);
	check_checkpoint(&k);
	check_resume(&k);
	json_object_set_new(k.check, "warnings", k.warnings);
	arena_finish(&k.arena);
	*errors = k.errors;
	*check = k.check;
}

#include "engine/report/metrics_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/report/flops.h"
#include "proto/artifact.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"
#include "proto/version.h"

#define INT(value) ((json_int_t)(value))

static json_t *text_or_null(const char *text)
{
	return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *ns_as_s(int64_t ns)
{
	return json_real((double)ns / 1e9);
}

/* ---- steps one by one ---- */

enum column { COLUMN_STEP_NS, COLUMN_LOSS };

/* Steps [first, done) of one column; null if there are too many. */
static json_t *list_steps(const struct measure *m, int64_t first, enum column column)
{
	json_t *list;
	int64_t i;

	if (m->done - first > METRICS_REPORT_STEPS_MAX)
		return json_null();
	list = json_array();
	for (i = first; i < m->done; i++) {
		const struct measure_step *step = &m->slowest[i];

		if (column == COLUMN_STEP_NS && !measure_counts(m, i))
			continue;
		json_array_append_new(list,
			column == COLUMN_LOSS ? rpc_real(step->loss)
					      : json_integer(INT(step->step_ns)));
	}
	return list;
}

static json_t *list_note(const struct measure *m)
{
	if (m->done <= METRICS_REPORT_STEPS_MAX)
		return json_null();
	return json_sprintf("%lld steps, more than the %d that are listed; see step_log.csv",
		(long long)m->done, METRICS_REPORT_STEPS_MAX);
}

static void append_nonfinite(json_t *list, const char *field, int64_t step)
{
	if (json_array_size(list) < METRICS_REPORT_NONFINITE_MAX)
		json_array_append_new(
			list, json_pack("{s:s, s:I}", "field", field, "step", INT(step)));
}

/*
 * Values that are not finite, with their step (from 1). In fp16 the gradient norm of a skipped step
 * does not count: it overflowed, and the loss scale handles that.
 */
static json_t *list_nonfinite(const struct metrics_segment *s)
{
	const struct measure *m = s->measure;
	json_t *list = json_array();
	bool fp16 = s->config->precision == SPEC_FP16;
	int64_t i;

	for (i = 0; i < m->done; i++) {
		const struct measure_step *step = &m->slowest[i];

		if (!isfinite(step->loss))
			append_nonfinite(list, "loss", m->before + i + 1);
		if (!isfinite(step->grad_norm) && !(fp16 && step->skipped))
			append_nonfinite(list, "grad_norm", m->before + i + 1);
	}
	if (s->validated && !isfinite(s->val_loss))
		append_nonfinite(list, "val_loss", m->before + m->done);
	return list;
}

/* SHA-256 of the losses of all steps, as in memory: shows equal work at a glance. */
static json_t *hash_losses(const struct measure *m)
{
	double *losses = memory_zeroed((size_t)m->done, sizeof(*losses));
	char hex[65] = "";
	int64_t i;

	for (i = 0; i < m->done; i++)
		losses[i] = m->slowest[i].loss;
	artifact_sha256(losses, (size_t)m->done * sizeof(*losses), hex);
	free(losses);
	return json_string(hex);
}

/* ---- parts of report and summary ---- */

static json_t *pack_plan(const struct metrics_segment *s)
{
	const struct metrics_plan *p = &s->plan;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "reduce_elems", INT(p->reduce_elems),
		"n_reduce", INT(p->n_reduce), "gather_elems", INT(p->gather_elems), "n_gather",
		INT(p->n_gather), "arena_elems", INT(p->arena_elems), "elem_bytes",
		INT(s->elem_bytes));
}

static json_t *pack_val_loss(const struct metrics_segment *s)
{
	return s->validated ? rpc_real(s->val_loss) : json_null();
}

static json_t *pack_p95(const struct stats_summary *step, bool seconds)
{
	if (step->n < STATS_P95_MIN_SAMPLES)
		return json_null();
	return seconds ? ns_as_s(step->p95) : json_integer(INT(step->p95));
}

static json_t *pack_switch(const struct metrics_segment *s)
{
	return s->switch_ns < 0 ? json_null() : json_integer(INT(s->switch_ns));
}

/* Null with one rank. */
static json_t *pack_slowest(const struct metrics_segment *s)
{
	struct measure_slowest slowest;

	if (measure_find_slowest(s->measure, &slowest) < 0)
		return json_null();
	return json_pack("{s:i, s:f, s:f, s:i, s:i}", "rank", slowest.rank, "work_mean_s",
		slowest.work_mean_s, "others_median_s", slowest.others_median_s, "parts",
		slowest.parts, "most_in", slowest.most_in);
}

static const struct measure_step *last_step(const struct metrics_segment *s)
{
	return &s->measure->slowest[s->measure->done - 1];
}

static json_t *list_files(const struct metrics_files *files)
{
	json_t *list = json_array();
	size_t i;

	for (i = 0; i < files->n; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:I}", "path", files->file[i].name, "bytes",
				INT(files->file[i].bytes)));
	return list;
}

static json_t *joined(json_t *base, json_t *more)
{
	json_object_update_missing(base, more);
	json_decref(more);
	return base;
}

/* ---- disturbances of the machine ---- */

static bool on_gpu(const struct metrics_segment *s)
{
	return strcmp(s->device->backend, "cpu") != 0;
}

/* Model and hardware FLOPs over the peak of all devices; nan: the peak is not known. */
struct utilisation {
	double mfu, hfu;
};

static struct utilisation utilisation_of(
	const struct metrics_segment *s, const struct measure_summary *sum)
{
	const double tflops = s->peak_tflops > 0 ? s->peak_tflops : flops_peak(s->device->name);
	const double possible = tflops * 1e12 * s->world * sum->seconds_measured;
	const double steps = (double)sum->steps_measured;
	struct flops flops;

	if (!(possible > 0))
		return (struct utilisation){(double)NAN, (double)NAN};
	flops_count(s->config, s->vocab_padded, &flops);
	return (struct utilisation){
		steps * flops.model / possible, steps * flops.hardware / possible};
}

/* Of all devices together; nan: one of them is not known. */
static double energy_j(const struct metrics_segment *s)
{
	double sum = 0;

	for (int rank = 0; rank < s->world; rank++)
		sum += s->ranks[rank].use.energy_j;
	return sum;
}

static double cpu_percent(const struct metrics_segment *s)
{
	double sum = 0;

	for (int rank = 0; rank < s->world; rank++)
		sum += s->ranks[rank].use.cpu_percent;
	return sum / s->world;
}

static double comm_s(const struct metrics_segment *s)
{
	double sum = 0;

	for (int rank = 0; rank < s->world; rank++)
		sum += s->ranks[rank].use.comm_s;
	return sum / s->world;
}

/* Null on the CPU, or if the driver does not report it. */
static json_t *pack_peak_memory(const struct metrics_segment *s, int ranks)
{
	int64_t most = -1;

	for (int rank = 0; rank < ranks; rank++)
		if (s->ranks[rank].gpu.samples > 0 && s->ranks[rank].gpu.used_max_bytes > most)
			most = s->ranks[rank].gpu.used_max_bytes;
	return most < 0 ? json_null() : json_integer(INT(most));
}

static json_t *pack_allocated(const struct metrics_segment *s)
{
	return on_gpu(s) ? json_integer(INT(s->device_bytes)) : json_null();
}

/* Means over the ranks that have samples; null if none has. */
static json_t *pack_gpus(const struct metrics_segment *s)
{
	double sm_mhz = 0, power_w = 0, temperature_c = 0, percent = 0;
	int64_t throttle = 0;
	int n = 0;

	for (int rank = 0; rank < s->world; rank++) {
		const struct gpu_log_summary *g = &s->ranks[rank].gpu;

		if (g->samples == 0)
			continue;
		sm_mhz += g->sm_mhz;
		power_w += g->power_w;
		temperature_c += g->temperature_c;
		percent += g->gpu_percent;
		throttle |= g->throttle > 0 ? g->throttle : 0;
		n++;
	}
	if (n == 0)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:I}", "sm_clock_mhz", rpc_real(sm_mhz / n),
		"power_w", rpc_real(power_w / n), "temperature_c", rpc_real(temperature_c / n),
		"gpu_percent", rpc_real(percent / n), "throttle", INT(throttle));
}

/* Why the machine, not the training, makes the times unusable; empty: no reason. */
static json_t *list_void(const struct metrics_segment *s)
{
	json_t *list = json_array();
	int64_t throttle = 0;

	for (int rank = 0; rank < s->world; rank++)
		if (s->ranks[rank].gpu.samples > 0 && s->ranks[rank].gpu.throttle > 0)
			throttle |= s->ranks[rank].gpu.throttle;
	if (throttle & GPU_LOG_THERMAL)
		json_array_append_new(list, json_string("thermal_slowdown"));
	if (throttle & GPU_LOG_HARDWARE)
		json_array_append_new(list, json_string("hw_slowdown"));
	for (int rank = 0; rank < s->world; rank++) {
		const struct metrics_host_rank *r = &s->ranks[rank];

		if (r->gpu.samples > 0 && r->gpu.others_max > 0)
			json_array_append_new(list,
				json_sprintf("gpu_shared: rank %d, %lld other processes", rank,
					(long long)r->gpu.others_max));
		if (r->use.standstill_ns > 0)
			json_array_append_new(list,
				json_sprintf("standstill: rank %d, %.1f s", rank,
					(double)r->use.standstill_ns / 1e9));
	}
	return list;
}

/* The parts of exposed communication, and the number of steps that they refer to. */
static json_t *pack_exposed(const struct measure_summary *sum)
{
	return json_pack("{s:o, s:o, s:I}", "exposed_transfer_mean_s",
		rpc_real(sum->exposed_transfer), "exposed_wait_mean_s", rpc_real(sum->exposed_wait),
		"exposed_split_steps", INT(sum->split_steps));
}

/* Seconds until a loss is at most work.target_loss; null: no target, or not reached. */
static json_t *time_to_loss(const struct metrics_segment *s)
{
	const struct measure *m = s->measure;
	int64_t ns = 0;

	for (int64_t i = 0; s->config->target_loss > 0.0 && i < m->done; i++) {
		ns += m->slowest[i].step_ns;
		if (m->slowest[i].loss <= s->config->target_loss)
			return ns_as_s(ns);
	}
	return json_null();
}

/* Null if the segment wrote none. */
static json_t *pack_checkpoints(const struct metrics_segment *s)
{
	const struct metrics_checkpoints *c = s->checkpoints;
	const double n = c ? (double)(c->written + c->lost) * 1e9 : 0;

	if (!c)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "written", INT(c->written),
		"lost", INT(c->lost), "last_step", INT(c->last), "bytes", INT(c->bytes),
		"steps_left_out", INT(s->measure->saving), "copy_mean_s",
		rpc_real((double)c->copy_ns / n), "wait_mean_s", rpc_real((double)c->wait_ns / n),
		"write_mean_s", rpc_real((double)c->write_ns / n));
}

/* In the summary and in training_metrics.json. */
static json_t *pack_machine(const struct metrics_segment *s, const struct measure_summary *sum)
{
	const struct utilisation u = utilisation_of(s, sum);

	return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"checkpoints", pack_checkpoints(s), "steps_before", INT(s->measure->before),
		"time_to_loss_s", time_to_loss(s), "comm_total_mean_s", rpc_real(comm_s(s)),
		"data_hash", text_or_null(s->data_hash), "mfu", rpc_real(u.mfu), "hfu",
		rpc_real(u.hfu), "energy_j", rpc_real(energy_j(s)), "cpu_percent",
		rpc_real(cpu_percent(s)), "gpu", pack_gpus(s), "peak_device_bytes",
		pack_peak_memory(s, s->world), "void", list_void(s));
}

json_t *metrics_report_summary(const struct metrics_segment *s, const struct measure_summary *sum,
	const struct metrics_files *files)
{
	const struct measure *m = s->measure;
	json_t *figures = json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:o, s:f, s:f, s:f, s:f, s:f}",
		"tokens_measured", INT(sum->tokens_measured), "tokens_total",
		INT(sum->tokens_total), "seconds_measured", sum->seconds_measured, "tok_s_global",
		sum->tok_s_global, "tok_s_per_gpu", sum->tok_s_per_gpu, "step_median_ns",
		INT(sum->step.median), "step_p95_ns", pack_p95(&sum->step, false),
		"exposed_comm_mean_s", sum->phases.exposed_comm, "forward_mean_s",
		sum->phases.forward, "backward_mean_s", sum->phases.backward, "optimizer_mean_s",
		sum->phases.optimizer, "data_mean_s", sum->phases.data);
	json_t *work = json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "steps_attempted",
		INT(sum->steps_attempted), "steps_applied", INT(sum->steps_applied),
		"steps_skipped", INT(sum->steps_skipped), "loss_last", rpc_real(last_step(s)->loss),
		"loss_hash", hash_losses(m), "val_loss", pack_val_loss(s), "grad_norm_last",
		rpc_real(last_step(s)->grad_norm));
	json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "step_time_ns",
		list_steps(m, m->warmup, COLUMN_STEP_NS), "losses", list_steps(m, 0, COLUMN_LOSS),
		"plan", pack_plan(s), "nonfinite", list_nonfinite(s), "init_ns", INT(s->init_ns),
		"switch_ns", pack_switch(s), "slowest_rank", pack_slowest(s), "artifacts",
		list_files(files));
	json_t *summary = joined(joined(joined(figures, work), rest), pack_machine(s, sum));

	summary = joined(summary, pack_exposed(sum));
	if (m->done > METRICS_REPORT_STEPS_MAX)
		summary = joined(summary, json_pack("{s:o}", "step_time_note", list_note(m)));
	return summary;
}

/* ---- training_metrics.json: the old keys ---- */

/* Versions of present libraries; those of the old harness are null. */
static json_t *pack_env(const struct metrics_segment *s)
{
	return json_pack("{s:n, s:n, s:n, s:n, s:n, s:s, s:s, s:s, s:o, s:s}", "python_version",
		"torch_version", "transformers_version", "deepspeed_version", "cuda_version",
		"gpt2d_version", VERSION_RELEASE, "gpt2d_build", version_build, "blas",
		s->device->library, "collectives", text_or_null(s->collectives), "jansson",
		jansson_version_str());
}

/* Ranks on the rank's node. */
static int ranks_beside(const struct metrics_segment *s, int rank)
{
	int n = 0;

	for (int other = 0; other < s->world; other++)
		n += s->ranks[other].node == s->ranks[rank].node;
	return n;
}

static int count_nodes(const struct metrics_segment *s)
{
	int n = 0, before;

	for (int rank = 0; rank < s->world; rank++) {
		for (before = 0; s->ranks[before].node != s->ranks[rank].node; before++)
			;
		n += before == rank;
	}
	return n;
}

static json_t *pack_hardware(const struct metrics_segment *s)
{
	const bool gpu = on_gpu(s);

	return json_pack("{s:o, s:i, s:i, s:i, s:i, s:n, s:o, s:s, s:s, s:i, s:I}", "gpu_name",
		gpu ? json_string(s->device->name) : json_null(), "gpu_count_visible",
		s->device->visible, "world_size", s->world, "nodes", count_nodes(s),
		"ranks_per_node", ranks_beside(s, 0), "cuda_version", "cluster",
		metrics_host_variable("SLURM_CLUSTER_NAME"), "backend", s->device->backend,
		"device_name", s->device->name, "threads_per_rank", s->threads,
		"memory_total_bytes", INT(s->device->memory_total_bytes));
}

/* "train_small" of "/data/train_small.bin" */
static json_t *dataset_name(const struct spec_config *c)
{
	const char *slash = strrchr(c->data_train, '/');
	const char *base = slash != NULL ? slash + 1 : c->data_train;
	const char *dot = strrchr(base, '.');

	if (c->data_kind == SPEC_DATA_SYNTHETIC)
		return json_string("synthetic");
	return json_stringn(base, dot != NULL ? (size_t)(dot - base) : strlen(base));
}

static json_t *pack_training_config(const struct metrics_segment *s)
{
	const struct spec_config *c = s->config;
	json_t *size =
		json_sprintf("n_layer=%lld, n_head=%lld, n_embd=%lld", (long long)c->model.n_layer,
			(long long)c->model.n_head, (long long)c->model.n_embd);
	json_t *subsets = json_pack("{s:I, s:o}", "train", INT(s->train_sequences), "val",
		s->val_sequences > 0 ? json_integer(INT(s->val_sequences)) : json_null());

	return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s, s:b, s:I, s:o, s:o}",
		"model_name", c->model.preset, "model_size", size, "seq_len", INT(c->seq_len),
		"epochs", INT(c->work_epochs > 0 ? c->work_epochs : 1), "micro_batch_size_per_gpu",
		INT(c->micro_batch), "grad_accum_steps", INT(c->accumulation), "global_batch_size",
		INT(c->batch), "lr", c->lr, "optimizer", "AdamW", "precision",
		spec_precision_name(c->precision), "deepspeed_enabled", 0, "zero_stage",
		INT(c->zero_stage), "dataset_name", dataset_name(c), "dataset_subset_sizes",
		subsets);
}

static json_t *pack_deepspeed_config(const struct metrics_segment *s)
{
	return json_pack("{s:s, s:s, s:{s:b, s:b, s:I}}", "path", ARTIFACT_SPEC, "sha256",
		s->spec_sha256, "selected", "fp16_enabled", s->config->precision == SPEC_FP16,
		"wall_clock_breakdown", 1, "zero_stage", INT(s->config->zero_stage));
}

static json_t *pack_notes(void)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "steps",
		"The same as micro_steps; prefer micro_steps and optimizer_steps.",
		"tokens_per_sec_global",
		"Tokens over time of the measured steps: those after gpt2d.steps.warmup.",
		"step_time_mean_sec",
		"Elapsed time of the measured steps over their number. p50 and p95 are of the "
		"slowest rank in each step, by nearest rank; p95 is null under 20 steps.",
		"epochs",
		"One entry for the segment's fixed work, whatever part of an epoch it is.");
}

static json_t *pack_epoch(const struct metrics_segment *s, const struct measure_summary *sum)
{
	const struct measure *m = s->measure;
	int64_t micro_steps = sum->steps_attempted * s->config->accumulation;

	return json_pack("[{s:i, s:o, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:f, s:o, s:o,"
			 " s:f, s:o, s:o}]",
		"epoch_idx", 1, "epoch_wall_time_sec", ns_as_s(measure_elapsed_ns(m, 0)), "steps",
		INT(micro_steps), "micro_steps", INT(micro_steps), "optimizer_steps",
		INT(sum->steps_attempted), "tokens_processed_global", INT(sum->tokens_total),
		"tokens_per_sec_global", sum->tok_s_global, "train_loss_avg_global",
		rpc_real(sum->loss_mean), "val_loss_avg_global", pack_val_loss(s),
		"max_cuda_mem_allocated_bytes_rank0", pack_allocated(s),
		"max_cuda_mem_reserved_bytes_rank0", pack_peak_memory(s, 1), "step_time_mean_sec",
		sum->seconds_measured / (double)sum->steps_measured, "step_time_p50_sec",
		ns_as_s(sum->step.median), "step_time_p95_sec", pack_p95(&sum->step, true),
		"dataload_time_mean_sec", sum->phases.data, "max_cuda_mem_allocated_bytes_global",
		pack_allocated(s), "max_cuda_mem_reserved_bytes_global",
		pack_peak_memory(s, s->world));
}

/* ---- training_metrics.json: ours ---- */

static json_t *count_or_null(int64_t value)
{
	return value < 0 ? json_null() : json_integer(INT(value));
}

/* From the samples of a rank's GPU; null if there are none. */
static json_t *pack_gpu(const struct gpu_log_summary *g)
{
	json_t *who, *means;

	if (g->samples == 0)
		return json_null();
	who = json_pack("{s:o, s:o, s:o, s:o, s:I}", "name", text_or_null(g->device.name), "uuid",
		text_or_null(g->device.uuid), "driver", text_or_null(g->device.driver), "index",
		count_or_null(g->device.index), "samples", INT(g->samples));
	means = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sm_clock_mhz_mean",
		rpc_real(g->sm_mhz), "memory_clock_mhz_mean", rpc_real(g->memory_mhz),
		"temperature_c_mean", rpc_real(g->temperature_c), "temperature_c_max",
		count_or_null(g->temperature_max_c), "power_w_mean", rpc_real(g->power_w),
		"gpu_percent_mean", rpc_real(g->gpu_percent), "memory_percent_mean",
		rpc_real(g->memory_percent), "memory_used_max_bytes",
		count_or_null(g->used_max_bytes), "throttle_reasons", count_or_null(g->throttle),
		"other_processes_max", count_or_null(g->others_max));
	return joined(who, means);
}

static json_t *pack_phases(const struct measure_phases *p)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "data_mean_s", p->data, "forward_mean_s",
		p->forward, "backward_mean_s", p->backward, "exposed_comm_mean_s", p->exposed_comm,
		"optimizer_mean_s", p->optimizer);
}

static json_t *pack_ranks(const struct metrics_segment *s)
{
	json_t *list = json_array();
	int rank;

	for (rank = 0; rank < s->world; rank++) {
		const struct metrics_host_rank *r = &s->ranks[rank];
		struct measure_phases own;
		json_t *entry;

		measure_rank_phases(s->measure, rank, &own);
		entry = json_pack("{s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "rank",
			rank, "node", INT(r->node), "pid", INT(r->pid), "hostname",
			text_or_null(r->hostname), "cpus", text_or_null(r->cpus), "peak_rss_bytes",
			r->peak_rss_bytes > 0 ? json_integer(INT(r->peak_rss_bytes)) : json_null(),
			"gpu", pack_gpu(&r->gpu), "work_mean_s", own.work, "phases",
			pack_phases(&own), "cpu_percent", rpc_real(r->use.cpu_percent));
		json_array_append_new(list, entry);
	}
	return list;
}

/* Null with one rank. */
static json_t *pack_network(const struct metrics_segment *s)
{
	const struct metrics_network *n = &s->network;

	if (s->world == 1)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o}", "name", text_or_null(n->name), "devices",
		text_or_null(n->devices), "paths", text_or_null(n->paths), "gpu_direct_rdma",
		n->gpu_direct < 0 ? json_null() : json_boolean(n->gpu_direct));
}

/* Payload bytes that rank 0 sends: by the plan and as counted. */
static json_t *pack_traffic(const struct metrics_segment *s)
{
	const struct metrics_traffic *t = &s->planned_elems;
	int64_t bytes = s->elem_bytes * s->measure->done;

	return json_pack("{s:{s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I}}", "planned_bytes",
		"reduce_scatter", INT(t->reduce_scatter * bytes), "all_gather",
		INT(t->all_gather * bytes), "all_reduce", INT(t->all_reduce * bytes), "sent_bytes",
		"reduce_scatter", INT(s->sent_bytes.reduce_scatter), "all_gather",
		INT(s->sent_bytes.all_gather), "all_reduce", INT(s->sent_bytes.all_reduce), "other",
		INT(s->sent_bytes.other));
}

static json_t *pack_memory(const struct metrics_segment *s)
{
	return json_pack("{s:s, s:I, s:I, s:I}", "activation_checkpointing",
		spec_recompute_name(s->config->recompute), "activations_bytes",
		INT(s->activations_bytes), "logits_bytes", INT(s->logits_bytes), "device_bytes",
		INT(s->device_bytes));
}

static json_t *pack_batch(const struct metrics_segment *s)
{
	const struct spec_config *c = s->config;

	return json_pack("{s:I, s:I, s:i, s:I, s:I, s:I}", "train_micro_batch_size_per_gpu",
		INT(c->micro_batch), "gradient_accumulation_steps", INT(c->accumulation), "world",
		s->world, "train_batch_size", INT(c->batch), "seq_len", INT(c->seq_len),
		"tokens_per_step", INT(s->measure->tokens_per_step));
}

static json_t *pack_buckets(const struct metrics_segment *s)
{
	json_t *asked = json_pack("{s:I, s:I, s:b, s:b}", "asked_reduce_elems",
		INT(s->config->reduce_bucket_elems), "asked_gather_elems",
		INT(s->config->allgather_bucket_elems), "overlap_comm", s->config->overlap_comm,
		"reduce_scatter", s->config->reduce_scatter);

	return joined(pack_plan(s), asked);
}

static json_t *pack_steps(const struct metrics_segment *s, const struct measure_summary *sum)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "attempted", INT(sum->steps_attempted),
		"applied", INT(sum->steps_applied), "skipped", INT(sum->steps_skipped), "warmup",
		INT(s->measure->warmup), "measured", INT(sum->steps_measured));
}

static json_t *pack_place(const struct metrics_segment *s)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "run", s->run,
		"name", s->name, "arm", s->arm, "segment", INT(s->segment), "segments",
		INT(s->segments), "block", INT(s->block), "position", INT(s->position), "attempt",
		INT(s->attempt), "spec_sha256", s->spec_sha256, "run_spec_sha256",
		text_or_null(s->run_spec_sha256));
}

static json_t *pack_ours(const struct metrics_segment *s, const struct measure_summary *sum)
{
	static const char in_order[] =
		"Sums over ranks are taken in rank order, so neither bucket sizes nor overlap "
		"change a loss; the same spec, build, libraries and threads give the same bits.";
	static const char by_choices[] =
		"The same spec, build, libraries, kind and number of GPUs and "
		"tuning_cache_sha256 give the same bits.";
	json_t *nonfinite = list_nonfinite(s);
	bool finite = json_array_size(nonfinite) == 0;
	const char *status = s->partial          ? s->partial
		: utilisation_of(s, sum).mfu > 1 ? "completed_invalid"
		: finite                         ? "completed"
						 : "completed_nonfinite";
	const char *reason = s->partial_reason && s->partial_reason[0] ? s->partial_reason : NULL;
	json_t *figures = json_pack("{s:s, s:o, s:I, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:I, s:o}",
		"status", status, "reason", text_or_null(reason), "tokens_total",
		INT(sum->tokens_total), "tokens_measured", INT(sum->tokens_measured),
		"seconds_measured", sum->seconds_measured, "tok_s_global", sum->tok_s_global,
		"tok_s_per_gpu", sum->tok_s_per_gpu, "steps", pack_steps(s, sum), "phases",
		pack_phases(&sum->phases), "nonfinite", nonfinite, "init_ns", INT(s->init_ns),
		"switch_ns", pack_switch(s));
	json_t *lists = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step_time_ns",
		list_steps(s->measure, s->measure->warmup, COLUMN_STEP_NS), "losses",
		list_steps(s->measure, 0, COLUMN_LOSS), "steps_note", list_note(s->measure),
		"loss_hash", hash_losses(s->measure), "loss_first", rpc_real(sum->loss_first),
		"loss_last", rpc_real(last_step(s)->loss), "grad_norm_last",
		rpc_real(last_step(s)->grad_norm));
	json_t *setting = json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:I, s:I, s:s, s:s, s:o, s:o, s:o}",
		"network", pack_network(s), "batch", pack_batch(s), "plan", pack_buckets(s),
		"memory", pack_memory(s), "traffic", pack_traffic(s), "ranks", pack_ranks(s),
		"slowest_rank", pack_slowest(s), "world", s->world, "model_params",
		INT(s->model_params), "param_elems", INT(s->plan.param_elems), "grad_dtype",
		spec_precision_name(s->config->grad_dtype), "determinism",
		s->tuning_sha256 ? by_choices : in_order, "tuning_cache_sha256",
		text_or_null(s->tuning_sha256), "train_sha256", text_or_null(s->train_sha256),
		"val_sha256", text_or_null(s->val_sha256));

	return joined(joined(joined(pack_place(s), figures), joined(lists, setting)),
		joined(pack_machine(s, sum), pack_exposed(sum)));
}

json_t *metrics_report_make(
	const struct metrics_segment *s, const struct measure_summary *sum, int64_t utc_ns)
{
	char started[CLOCK_TEXT_BYTES], now[CLOCK_TEXT_BYTES];
	json_t *head, *work;

	clock_text_s(s->started_utc_ns, started);
	clock_text_s(utc_ns, now);
	head = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:{s:s, s:o}, s:o, s:o, s:o, s:o}",
		"schema_version", ARTIFACT_METRICS_SCHEMA, "run_id", s->run, "timestamp_utc",
		started, "git_commit", version_build, "command_line", text_or_null(s->command_line),
		"env", pack_env(s), "host", "hostname", s->ranks[0].hostname, "os",
		metrics_host_os(), "hardware", pack_hardware(s), "training_config",
		pack_training_config(s), "deepspeed_config", pack_deepspeed_config(s),
		"schema_notes", pack_notes());
	work = json_pack("{s:o, s:{s:o, s:o, s:f}, s:{s:b, s:b}, s:{s:s, s:b, s:s}, s:o, s:o}",
		"epochs", pack_epoch(s, sum), "summary", "total_wall_time_sec", ns_as_s(s->wall_ns),
		"best_val_loss", pack_val_loss(s), "mean_tokens_per_sec_global", sum->tok_s_global,
		"shutdown", "destroy_process_group_called", 0, "quiet_nccl_monitor", 0,
		"completion", "run_complete_file", ARTIFACT_COMPLETE, "printed_marker",
		s->partial == NULL, "timestamp_utc", now, "scheduler", metrics_host_scheduler(),
		"gpt2d", pack_ours(s, sum));
	return joined(head, work);
}

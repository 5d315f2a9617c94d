#include "ctl/print/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/members.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"
#include "proto/rpc.h"
#include "proto/spec/spec_config.h"

enum { BAR_CELLS = 8, BAR_BYTES = 3 * BAR_CELLS + 8, DEVICE_COLUMNS = 110 };

const char *ranks_load(const json_t *object, char *out, size_t out_bytes)
{
	const double load = format_real(object, "cpu_load");

	if (isfinite(load))
		snprintf(out, out_bytes, "%.0f%%", load * 100.0);
	else
		snprintf(out, out_bytes, "-");
	return out;
}

/* "61.2 GB", or "-" */
static const char *size_of(const json_t *object, const char *key, char out[FORMAT_BYTES])
{
	if (!json_is_integer(json_object_get(object, key)))
		return "-";
	return format_size(format_int(object, key, 0), out);
}

/* "####----  52%", without bars "52%", or "-", for the fraction. */
static void cell_share(struct table *table, const struct term *t, double fraction, const char *text)
{
	char bar[BAR_BYTES];

	if (!isfinite(fraction)) {
		table_cell(table, "-");
		return;
	}
	term_bar(t, fraction, BAR_CELLS, bar, sizeof(bar));
	if (*bar)
		table_cell(table, "%s %*s", bar, 5, text);
	else
		table_cell(table, "%s", text);
}

static void cell_unit(struct table *table, double value, const char *unit)
{
	if (isfinite(value))
		table_cell(table, "%.0f %s", value, unit);
	else
		table_cell(table, "-");
}

/* ---- the columns of a rank on a GPU, and of one on processors ---- */

static void gpu_cells(
	struct table *table, const struct term *t, const json_t *rank, const char *device)
{
	const json_t *gpu = json_object_get(rank, "gpu");
	const double busy = format_real(gpu, "utilization");
	char percent[16], used[FORMAT_BYTES], load[32];

	snprintf(percent, sizeof(percent), "%.0f%%", busy * 100.0);
	cell_share(table, t, busy, percent);
	cell_share(table, t,
		format_real(gpu, "memory_used_bytes") / format_real(gpu, "memory_total_bytes"),
		size_of(gpu, "memory_used_bytes", used));
	cell_unit(table, format_real(gpu, "temperature_c"), "C");
	cell_unit(table, format_real(gpu, "power_w"), "W");
	table_cell(table, "%s", ranks_load(rank, load, sizeof(load)));
	if (t->width >= DEVICE_COLUMNS)
		table_cell(table, "%s", device);
}

/* The bar is full when all threads that compute do. */
static void cpu_cells(struct table *table, const struct term *t, const json_t *rank, double threads,
	const char *device)
{
	char load[32], rss[FORMAT_BYTES];

	cell_share(table, t, format_real(rank, "cpu_load") / threads,
		ranks_load(rank, load, sizeof(load)));
	table_cell(table, "%s", size_of(rank, "rss_bytes", rss));
	table_cell(table, "%s", device);
}

/* ---- all ---- */

static bool any_gpu(const json_t *ranks)
{
	const json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank)
		if (json_is_object(json_object_get(rank, "gpu")))
			return true;
	return false;
}

bool ranks_on_nodes(const json_t *ranks)
{
	const json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank)
		if (format_int(rank, "node", 0) > 0)
			return true;
	return false;
}

void ranks_print(const struct term *t, const json_t *engine, size_t rows)
{
	const json_t *ranks = json_object_get(engine, "ranks"), *rank;
	const double threads = (double)format_int(engine, "threads", 1);
	const bool gpus = any_gpu(ranks), nodes = ranks_on_nodes(ranks);
	char device[256];
	struct table table;
	size_t i;

	table_init(&table);
	table_columns(&table, nodes ? ">RANK\t>NODE\tSTATE\t>PID" : ">RANK\tSTATE\t>PID");
	table_columns(
		&table, gpus ? "GPU\tGPU MEMORY\t>TEMP\t>POWER\t>CPU" : "CPU\t>MEMORY\tDEVICE");
	if (gpus && t->width >= DEVICE_COLUMNS)
		table_columns(&table, "DEVICE");
	json_array_foreach(ranks, i, rank) {
		if (i == rows)
			break;
		members_cells(
			&table, rank, nodes ? "{rank}\t{node|0}\t{state}" : "{rank}\t{state}");
		members_cells(&table, rank, format_int(rank, "pid", 0) > 0 ? "{pid}" : "-");
		format_string(json_object_get(rank, "device"), "name", "-", device, sizeof(device));
		if (gpus)
			gpu_cells(&table, t, rank, device);
		else
			cpu_cells(&table, t, rank, threads > 0.0 ? threads : 1.0, device);
	}
	table_print(&table, t, "        ");
	table_finish(&table);
	if (i < json_array_size(ranks))
		fprintf(t->file, "        and %zu more\n", json_array_size(ranks) - i);
}

/*
 * ": python3 of ann (uid 1234), pid 77, 12 GB" for the process with most memory; nothing if
 * unknown.
 */
static void print_other(FILE *to, const json_t *gpu)
{
	const int64_t uid = format_int(gpu, "other_uid", -1);
	char user[TEXT_USER_BYTES];

	if (format_int(gpu, "other_pid", 0) <= 0)
		return;
	fputs(": ", to);
	if (uid >= 0) {
		members_print(to, gpu, "{other_command} of ");
		fprintf(to, "%s, ", text_user(uid, user));
	}
	members_print(to, gpu, "pid {other_pid}[, {other_memory_bytes:size}]");
}

int ranks_print_others(const struct term *t, const json_t *ranks, int rows)
{
	const json_t *rank;
	int lines = 0;
	size_t i;

	json_array_foreach(ranks, i, rank) {
		const json_t *gpu = json_object_get(rank, "gpu");
		const int64_t others = format_int(gpu, "other_processes", 0);

		if (others <= 0 || lines == rows)
			continue;
		lines++;
		fprintf(t->file,
			"        %srank %lld: %lld other process%s on its GPU %s the measurement",
			term_colour(t, TERM_RED), (long long)format_int(rank, "rank", (int64_t)i),
			(long long)others, others == 1 ? "" : "es",
			others == 1 ? "disturbs" : "disturb");
		print_other(t->file, gpu);
		fprintf(t->file, "%s\n", term_colour(t, TERM_PLAIN));
	}
	return lines;
}

/* ---- nodes ---- */

static bool is_joined(const json_t *member)
{
	const char *state = json_string_value(json_object_get(member, "state"));

	return state && strcmp(state, "joined") == 0;
}

static void cell_ms(struct table *table, const char *what, double seconds, const char *format)
{
	char number[32];

	snprintf(number, sizeof(number), "-");
	if (isfinite(seconds))
		snprintf(number, sizeof(number), "%s%.1f ms",
			seconds > 0 && format[0] == '+' ? "+" : "", seconds * 1e3);
	table_cell(table, "%s %s", what, number);
}

static void print_members(const struct term *t, const json_t *members, int rows)
{
	const json_t *member;
	struct table table;
	int printed = 0;
	size_t i;

	table_init(&table);
	table_columns(&table, "\t\t\t\t\t");
	for (int joined = 0; joined < 2; joined++) {
		json_array_foreach(members, i, member) {
			if (is_joined(member) != (joined == 1) || printed++ >= rows)
				continue;
			members_cells(&table, member, "node {node}\t{state}\t{host|}\t{address|}");
			if (joined) {
				cell_ms(&table, "round trip", format_real(member, "rtt_s"), "");
				cell_ms(&table, "clock", format_real(member, "clock_offset_s"),
					"+");
			} else {
				members_cells(&table, member, "{reason|}\t");
			}
		}
	}
	table_print(&table, t, "        ");
	table_finish(&table);
}

void ranks_print_nodes(const struct term *t, const json_t *world, int rows)
{
	const json_t *members = json_object_get(world, "members"), *member;
	const size_t n = json_array_size(members);
	size_t joined = 0, i;

	if (!json_is_object(world))
		return;
	if (json_is_object(json_object_get(world, "leader"))) {
		members_print(t->file, world,
			"nodes   node {node|0}, member of {leader.address}[ ({leader.host})]: "
			"{leader.state} since {leader.since:time|-}[: {leader.reason}]\n");
		return;
	}
	json_array_foreach(members, i, member)
		joined += is_joined(member);
	fprintf(t->file, "%snodes   %zu of %zu, ", joined < n ? term_colour(t, TERM_RED) : "",
		joined + 1, n + 1);
	members_print(t->file, world, "the leader listens on {listen}");
	fprintf(t->file, "%s\n", joined < n ? term_colour(t, TERM_PLAIN) : "");
	print_members(t, members, rows);
}

/* ---- the rank for which the others wait ---- */

static const double NOTABLE_RATIO = 1.05;
/* of the parts: a single delayed step can raise the mean */
static const double NOTABLE_SHARE = 0.75;

struct tally {
	int64_t segments;
	double sum;
};

/* How much more work the slowest rank has; nan: not comparable. */
static double ratio_of(const json_t *slowest, int64_t rank)
{
	const double others = format_real(slowest, "others_median_s");
	const double ratio = format_real(slowest, "work_mean_s") / others;

	return rank >= 0 && rank < SPEC_WORLD_MAX && others > 0.0 ? ratio : (double)NAN;
}

/* Older engines did not report it. */
static bool is_steady(const json_t *slowest)
{
	const int64_t parts = format_int(slowest, "parts", 0);

	return parts == 0 ||
		(double)format_int(slowest, "most_in", 0) >= NOTABLE_SHARE * (double)parts;
}

json_t *ranks_find_slow(const json_t *segments)
{
	struct tally tally[SPEC_WORLD_MAX] = {{0}};
	int64_t of = 0, most = 0;
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const json_t *slowest =
			json_object_get(json_object_get(segment, "summary"), "slowest_rank");
		const int64_t rank = format_int(slowest, "rank", -1);
		const double ratio = ratio_of(slowest, rank);

		if (!isfinite(ratio))
			continue;
		of++;
		if (ratio < NOTABLE_RATIO || !is_steady(slowest))
			continue;
		tally[rank].segments++;
		tally[rank].sum += ratio;
		if (tally[rank].segments > tally[most].segments)
			most = rank;
	}
	if (2 * tally[most].segments <= of)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:o}", "rank", (json_int_t)most, "segments",
		(json_int_t)tally[most].segments, "of", (json_int_t)of, "work_ratio",
		rpc_real(tally[most].sum / (double)tally[most].segments));
}

void ranks_print_slow(const struct term *t, const json_t *slow)
{
	const int64_t of = format_int(slow, "of", 0);
	char change[FORMAT_BYTES];

	if (!json_is_object(slow))
		return;
	members_print(t->file, slow, "slow rank: the others wait for rank {rank}, ");
	fprintf(t->file, "%s work in a step",
		format_signed(100.0 * (format_real(slow, "work_ratio") - 1.0), change));
	members_print(t->file, slow, of > 1 ? ", in {segments} of {of} segments\n" : "\n");
}

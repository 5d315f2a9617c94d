#include "ctl/print/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/table.h"
#include "ctl/print/text.h"

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

const char *ranks_size(const json_t *object, const char *key, char out[FORMAT_BYTES])
{
	if (!json_is_integer(json_object_get(object, key)))
		return "-";
	return format_size(format_int(object, key, 0), out);
}

/* "####----  52%", without bars "52%", or "-": of the fraction that the bar shows. */
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

static void gpu_columns(struct table *table, const struct term *t)
{
	table_column(table, "GPU", false);
	table_column(table, "GPU MEMORY", false);
	table_column(table, "TEMP", true);
	table_column(table, "POWER", true);
	table_column(table, "CPU", true);
	if (t->width >= DEVICE_COLUMNS)
		table_column(table, "DEVICE", false);
}

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
		ranks_size(gpu, "memory_used_bytes", used));
	cell_unit(table, format_real(gpu, "temperature_c"), "C");
	cell_unit(table, format_real(gpu, "power_w"), "W");
	table_cell(table, "%s", ranks_load(rank, load, sizeof(load)));
	if (t->width >= DEVICE_COLUMNS)
		table_cell(table, "%s", device);
}

static void cpu_columns(struct table *table, const struct term *t)
{
	table_column(table, "CPU", false);
	table_column(table, "MEMORY", true);
	table_column(table, "DEVICE", false);
}

/* The bar is full when all threads that compute do. */
static void cpu_cells(struct table *table, const struct term *t, const json_t *rank, double threads,
	const char *device)
{
	char load[32], rss[FORMAT_BYTES];

	cell_share(table, t, format_real(rank, "cpu_load") / threads,
		ranks_load(rank, load, sizeof(load)));
	table_cell(table, "%s", ranks_size(rank, "rss_bytes", rss));
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
	char state[32], pid[32], device[256];
	struct table table;
	size_t i;

	table_init(&table);
	table_column(&table, "RANK", true);
	if (nodes)
		table_column(&table, "NODE", true);
	table_column(&table, "STATE", false);
	table_column(&table, "PID", true);
	if (gpus)
		gpu_columns(&table, t);
	else
		cpu_columns(&table, t);
	json_array_foreach(ranks, i, rank) {
		if (i == rows)
			break;
		table_cell(&table, "%lld", (long long)format_int(rank, "rank", (int64_t)i));
		if (nodes)
			table_cell(&table, "%lld", (long long)format_int(rank, "node", 0));
		table_cell(&table, "%s", format_string(rank, "state", "?", state, sizeof(state)));
		table_cell(&table, "%s",
			format_int(rank, "pid", 0) > 0
				? format_string(rank, "pid", "-", pid, sizeof(pid))
				: "-");
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

/* ": python3 of ann (uid 1234), pid 77, 12 GB" of the one with most memory; "" if unknown. */
static void other_text(const json_t *gpu, char *out, size_t out_bytes)
{
	const int64_t pid = format_int(gpu, "other_pid", 0), uid = format_int(gpu, "other_uid", -1);
	char command[32], user[TEXT_USER_BYTES], size[FORMAT_BYTES];
	int n;

	out[0] = '\0';
	if (pid <= 0)
		return;
	if (uid >= 0)
		n = snprintf(out, out_bytes, ": %s of %s, pid %lld",
			format_string(gpu, "other_command", "?", command, sizeof(command)),
			text_user(uid, user), (long long)pid);
	else
		n = snprintf(out, out_bytes, ": pid %lld", (long long)pid);
	if (json_is_integer(json_object_get(gpu, "other_memory_bytes")))
		snprintf(out + n, out_bytes - (size_t)n, ", %s",
			ranks_size(gpu, "other_memory_bytes", size));
}

int ranks_print_others(const struct term *t, const json_t *ranks, int rows)
{
	char other[256];
	const json_t *rank;
	int lines = 0;
	size_t i;

	json_array_foreach(ranks, i, rank) {
		const json_t *gpu = json_object_get(rank, "gpu");
		const int64_t others = format_int(gpu, "other_processes", 0);

		if (others <= 0 || lines == rows)
			continue;
		lines++;
		other_text(gpu, other, sizeof(other));
		fprintf(t->file,
			"        %srank %lld: %lld other process%s on its GPU %s the "
			"measurement%s%s\n",
			term_colour(t, TERM_RED), (long long)format_int(rank, "rank", (int64_t)i),
			(long long)others, others == 1 ? "" : "es",
			others == 1 ? "disturbs" : "disturb", other, term_colour(t, TERM_PLAIN));
	}
	return lines;
}

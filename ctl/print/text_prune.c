/* prune and keep, for people. */
#include <stdio.h>

#include "ctl/print/format.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"

static void print_runs(const struct term *t, const json_t *runs)
{
	char name[80], state[32], at[64], size[FORMAT_BYTES];
	const json_t *run;
	struct table table;
	size_t i;

	table_init(&table);
	table_column(&table, "ID", true);
	table_column(&table, "STATE", false);
	table_column(&table, "ENDED", false);
	table_column(&table, "SIZE", true);
	table_column(&table, "NAME", false);
	json_array_foreach(runs, i, run) {
		table_cell(&table, "%lld", (long long)format_int(run, "id", 0));
		table_cell(&table, "%s", format_string(run, "state", "?", state, sizeof(state)));
		table_cell(&table, "%s", text_time(run, "ended_at", at, sizeof(at)));
		table_cell(&table, "%s", format_size(format_int(run, "bytes", 0), size));
		table_cell(&table, "%s", format_string(run, "name", "", name, sizeof(name)));
	}
	table_print(&table, t, "");
	table_finish(&table);
}

static void print_left(const struct term *t, const json_t *left)
{
	char name[80], dir[1024];
	const json_t *run;
	size_t i;

	json_array_foreach(left, i, run)
		fprintf(t->file,
			"gpt2ctl: run %lld %s stays: %s is not there; is a disk not mounted? "
			"--forget removes what is known of it\n",
			(long long)format_int(run, "id", 0),
			format_string(run, "name", "", name, sizeof(name)),
			format_string(run, "dir", "its folder", dir, sizeof(dir)));
}

static void print_kept(const struct term *t, const json_t *kept)
{
	const long long marked = format_int(kept, "marked", 0);
	const long long newest = format_int(kept, "newest", 0);
	const bool one = marked + newest == 1;

	if (marked + newest == 0)
		return;
	fprintf(t->file, "%lld %s: ", marked + newest, one ? "run stays" : "runs stay");
	if (marked > 0)
		fprintf(t->file, "%lld marked by gpt2ctl keep%s", marked, newest > 0 ? ", " : "");
	if (newest > 0)
		fprintf(t->file, "%lld the newest of --keep", newest);
	fputc('\n', t->file);
}

static void print_removed(const struct term *t, const json_t *result)
{
	const json_t *runs = json_object_get(result, "runs");
	const bool dry = json_is_true(json_object_get(result, "dry_run"));
	const size_t n = json_array_size(runs);
	char size[FORMAT_BYTES];

	if (n == 0) {
		fputs("no run to remove\n", t->file);
		return;
	}
	if (dry)
		print_runs(t, runs);
	fprintf(t->file, "%zu run%s %s, %s %s\n", n, n == 1 ? "" : "s",
		dry ? "would be removed" : "removed",
		format_size(format_int(result, "bytes", 0), size), dry ? "in all" : "freed");
}

void text_pruned(struct ctl *ctl, const json_t *result)
{
	print_left(&ctl->err, json_object_get(result, "left"));
	print_removed(&ctl->out, result);
	print_kept(&ctl->out, json_object_get(result, "kept"));
}

void text_kept(struct ctl *ctl, const json_t *reply)
{
	const bool kept = json_is_true(json_object_get(reply, "kept"));

	fprintf(ctl->out.file, "run %lld %s when old ones are removed\n",
		(long long)format_int(reply, "id", 0), kept ? "stays" : "goes with the others");
}

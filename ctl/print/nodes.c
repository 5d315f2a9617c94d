#include "ctl/print/nodes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/table.h"
#include "ctl/print/text.h"

static bool is_joined(const json_t *member)
{
	char state[16];

	return strcmp(format_string(member, "state", "", state, sizeof(state)), "joined") == 0;
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

static void print_member(struct table *table, const json_t *member)
{
	char state[16], host[256], address[128], reason[400];

	table_cell(table, "node %lld", (long long)format_int(member, "node", 0));
	table_cell(table, "%s", format_string(member, "state", "?", state, sizeof(state)));
	table_cell(table, "%s", format_string(member, "host", "", host, sizeof(host)));
	table_cell(table, "%s", format_string(member, "address", "", address, sizeof(address)));
	if (is_joined(member)) {
		cell_ms(table, "round trip", format_real(member, "rtt_s"), "");
		cell_ms(table, "clock", format_real(member, "clock_offset_s"), "+");
	} else {
		table_cell(
			table, "%s", format_string(member, "reason", "", reason, sizeof(reason)));
		table_cell(table, "%s", "");
	}
}

static void print_members(const struct term *t, const json_t *members, int rows)
{
	const json_t *member;
	struct table table;
	int printed = 0;
	size_t i;

	table_init(&table);
	for (int column = 0; column < 6; column++)
		table_column(&table, "", false);
	for (int joined = 0; joined < 2; joined++) {
		json_array_foreach(members, i, member) {
			if (is_joined(member) != (joined == 1) || printed == rows)
				continue;
			print_member(&table, member);
			printed++;
		}
	}
	table_print(&table, t, "        ");
	table_finish(&table);
}

static void print_leader(const struct term *t, const json_t *world)
{
	const json_t *leader = json_object_get(world, "leader");
	char state[16], host[256], address[128], reason[400], at[64];

	format_string(leader, "reason", "", reason, sizeof(reason));
	fprintf(t->file, "nodes   node %lld, member of %s%s%s%s: %s since %s%s%s\n",
		(long long)format_int(world, "node", 0),
		format_string(leader, "address", "?", address, sizeof(address)),
		*format_string(leader, "host", "", host, sizeof(host)) ? " (" : "", host,
		*host ? ")" : "", format_string(leader, "state", "?", state, sizeof(state)),
		text_time(leader, "since", at, sizeof(at)), *reason ? ": " : "", reason);
}

void nodes_print(const struct term *t, const json_t *world, int rows)
{
	const json_t *members = json_object_get(world, "members"), *member;
	char address[128];
	size_t joined = 0, i;

	if (!json_is_object(world))
		return;
	if (json_is_object(json_object_get(world, "leader"))) {
		print_leader(t, world);
		return;
	}
	json_array_foreach(members, i, member)
		joined += is_joined(member);
	fprintf(t->file, "%snodes   %zu of %zu, the leader listens on %s%s\n",
		joined < json_array_size(members) ? term_colour(t, TERM_RED) : "", joined + 1,
		json_array_size(members) + 1,
		format_string(world, "listen", "?", address, sizeof(address)),
		joined < json_array_size(members) ? term_colour(t, TERM_PLAIN) : "");
	print_members(t, members, rows);
}

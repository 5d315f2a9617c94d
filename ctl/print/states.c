#include "ctl/print/states.h"

#include <stddef.h>
#include <string.h>

#include "proto/protocol.h"

const struct states_row states_table[] = {
	{"queued", "it waits", TERM_PLAIN, -1},
	{"starting", "the engines are given it", TERM_CYAN, -1},
	{"running", "it is trained", TERM_CYAN, -1},
	{"finishing", "it is trained, its last files are being written", TERM_CYAN, -1},
	{"done", "it has ended, and all is there", TERM_GREEN, CTL_OK},
	{"failed", "it has ended, with a reason", TERM_RED, CTL_RUN_FAILED},
	{"cancelled", "somebody has ended it", TERM_YELLOW, CTL_CANCELLED},
	{"interrupted", "gpt2d stopped or went away", TERM_YELLOW, CTL_CANCELLED},
	{NULL, NULL, TERM_PLAIN, -1},
};

/* The last row, where there is no such state. */
static const struct states_row *find(const char *name)
{
	const struct states_row *row = states_table;

	while (row->name && strcmp(row->name, name) != 0)
		row++;
	return row;
}

enum term_colour states_colour(const char *name)
{
	return find(name)->colour;
}

int states_exit(const char *name)
{
	return find(name)->exit;
}

bool states_broke_off(const char *name)
{
	return find(name)->exit > CTL_OK;
}

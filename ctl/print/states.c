#include "ctl/print/states.h"

#include <stddef.h>
#include <string.h>

#include "proto/protocol.h"

const struct states_row states_table[] = {
	{"queued", "waits in the queue", TERM_PLAIN, -1},
	{"starting", "gpt2d sends it to the engines", TERM_CYAN, -1},
	{"running", "the engines train it", TERM_CYAN, -1},
	{"finishing", "trained; its last files are being written", TERM_CYAN, -1},
	{"done", "ended, with all files", TERM_GREEN, CTL_OK},
	{"failed", "ended with an error", TERM_RED, CTL_RUN_FAILED},
	{"cancelled", "a user ended it", TERM_YELLOW, CTL_CANCELLED},
	{"interrupted", "gpt2d stopped or crashed", TERM_YELLOW, CTL_CANCELLED},
	{NULL, NULL, TERM_PLAIN, -1},
};

/* The last row, for an unknown state. */
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

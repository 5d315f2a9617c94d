#include "proto/waiting.h"

static const struct {
	const char *code, *meaning;
} rows[WAITINGS] = {
	[WAITING_STOPPING] = {"stopping",
		"gpt2d ends; the run is kept, and starts when gpt2d runs again"},
	[WAITING_MEMBER] = {"member",
		"this gpt2d is a member of several nodes: only the leader trains its queue"},
	[WAITING_RELEASED] = {"released",
		"the engines have given their devices back, until gpt2ctl warm"},
	[WAITING_DRAINED] = {"drained", "no run starts until gpt2ctl resume"},
	[WAITING_RANKS] = {"ranks",
		"it trains on more ranks than gpt2d was started with; others start before it"},
	[WAITING_STORE] = {"store", "the database cannot be written, or its disk does not answer"},
	[WAITING_ROOM] = {"room",
		"a run could not write its files: the disk is full, read-only, broken or gone"},
	[WAITING_BEHIND] = {"behind",
		"another run is with the engines, or queued before it: which one, and for how "
		"long"},
	[WAITING_NODES] = {"nodes",
		"nodes are missing: which ones; the engines start when all have joined"},
	[WAITING_ENGINES] = {"engines", "they are being started, or are started again later"},
	[WAITING_PREPARING] = {"preparing", "nothing is in its way: its directory is being made"},
};

const char *waiting_code(enum waiting why)
{
	return rows[why].code;
}

void waiting_print_man(FILE *out)
{
	for (int i = 0; i < WAITINGS; i++)
		fprintf(out, ".It Cm %s\n%s.\n", rows[i].code, rows[i].meaning);
}

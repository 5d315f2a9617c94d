/* logs, for people. */
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/text.h"

static enum term_colour level_colour(const char *level)
{
	if (strcmp(level, "error") == 0)
		return TERM_RED;
	if (strcmp(level, "warning") == 0)
		return TERM_YELLOW;
	return strcmp(level, "debug") == 0 ? TERM_DIM : TERM_PLAIN;
}

void text_log_line(struct ctl *ctl, const json_t *line)
{
	const struct term *t = &ctl->out;
	const int64_t rank = format_int(line, "rank", -1);
	char at[64], level[16], message[2048], who[32] = "gpt2d";

	if (rank >= 0)
		snprintf(who, sizeof(who), "rank %lld", (long long)rank);
	format_string(line, "level", "?", level, sizeof(level));
	fprintf(t->file, "%s %s%-7s%s %s: %s\n", text_time(line, "at", at, sizeof(at)),
		term_colour(t, level_colour(level)), level, term_colour(t, TERM_PLAIN), who,
		format_string(line, "message", "", message, sizeof(message)));
}

void text_logs(struct ctl *ctl, const json_t *result)
{
	const int64_t dropped = format_int(result, "dropped", 0);
	const json_t *line;
	size_t i;

	if (dropped > 0)
		fprintf(ctl->out.file, "(%lld messages are not kept any more)\n",
			(long long)dropped);
	json_array_foreach(json_object_get(result, "lines"), i, line)
		text_log_line(ctl, line);
}

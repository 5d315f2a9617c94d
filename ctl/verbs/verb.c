#include "ctl/verbs/verb.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ctl/link/interrupt.h"
#include "proto/text.h"

int verb_parse_id(const char *word, int64_t *id, struct ctl_error *e)
{
	int64_t value = 0;
	const int rc = options_parse_int(word, &value);

	if (rc == -ERANGE && word[0] != '-')
		return ctl_error_set(e, CTL_USAGE,
			"%.80s: no run has this ID (at most %" PRId64 "); see: gpt2ctl list", word,
			INT64_MAX);
	if (rc != 0 || value < 1 || word[0] == '0')
		return ctl_error_set(e, CTL_USAGE,
			"%.80s: not a run ID (expected a whole number from 1); see: gpt2ctl list",
			*word ? word : "\"\"");
	*id = value;
	return 0;
}

int verb_parse_time(const char *option, const char *text, int64_t *seconds, struct ctl_error *e)
{
	static const struct {
		char letter;
		int64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
	const size_t digits = strspn(text, "0123456789");
	long long n;

	errno = 0;
	n = strtoll(text, NULL, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && digits > 0; i++) {
		if (text[digits] != units[i].letter || text[digits + 1] != '\0')
			continue;
		if (errno || n > PROTOCOL_OLDER_S_MAX / units[i].seconds)
			return ctl_error_set(e, CTL_USAGE,
				"%s: %.80s: too large, at most %" PRId64 "%c", option, text,
				PROTOCOL_OLDER_S_MAX / units[i].seconds, units[i].letter);
		*seconds = n * units[i].seconds;
		return 0;
	}
	return ctl_error_set(e, CTL_USAGE,
		"%s: %.80s: invalid time (expected a number and a unit, as 90s, 10m, 12h, "
		"30d)",
		option, text);
}

json_t *verb_error_json(const struct ctl_error *e)
{
	json_t *object = json_pack("{s:i, s:o, s:O*}", "exit", e->exit, "message",
		text_json(e->message), "data", e->data);

	if (e->code != 0)
		json_object_set_new(object, "code", json_integer(e->code));
	return object;
}

void verb_print_error(struct ctl *ctl, struct ctl_error *e)
{
	output_failure(&ctl->output, e->message, verb_error_json(e));
	ctl_error_clear(e);
}

int verb_worse(int a, int b)
{
	static const int order[] = {CTL_OK, CTL_CANCELLED, CTL_GATE_FAILED, CTL_RUN_FAILED,
		CTL_NO_SUCH_RUN, CTL_WRONG_STATE, CTL_NOT_ALLOWED, CTL_USAGE, CTL_NOT_NOW,
		CTL_GPT2D_FAILED, CTL_TIMEOUT, CTL_TRANSPORT};
	int at_a = -1, at_b = -1;

	for (int i = 0; i < (int)(sizeof(order) / sizeof(order[0])); i++) {
		if (order[i] == a)
			at_a = i;
		if (order[i] == b)
			at_b = i;
	}
	return at_b > at_a ? b : a;
}

bool verb_confirm(struct ctl *ctl, const char *question, ...)
{
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};
	FILE *to = ctl->output.err.file;
	char answer[16] = "";
	va_list args;

	interrupt_begin();
	va_start(args, question);
	vfprintf(to, question, args);
	va_end(args);
	fputs(" [y/N] ", to);
	fflush(to);
	if (interrupt_poll(&in, 1, -1) < 0) {
		fputc('\n', to);
		return false;
	}
	interrupt_end();
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

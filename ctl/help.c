/* gpt2ctl help. */
#include "ctl/help.h"

#include <string.h>

#include "ctl/link/ctl_error.h"
#include "ctl/verb_table.h"

enum { TEXT_WIDTH = 80, NAME_COLUMN = 26 };

/* Words of text from column at, in lines of TEXT_WIDTH; continuation lines are indented. */
static void wrap(FILE *out, const char *text, size_t at, size_t indent)
{
	while (*text) {
		const size_t n = strcspn(text, " ");

		if (at > indent && at + 1 + n > TEXT_WIDTH) {
			fprintf(out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, n, out);
		at += n;
		text += n;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void print_named(FILE *out, const char *name, const char *text)
{
	const int n = fprintf(out, "  %s", name);

	if (n < 0)
		return;
	if (n + 2 > NAME_COLUMN)
		fprintf(out, "\n%*s", NAME_COLUMN, "");
	else
		fprintf(out, "%*s", NAME_COLUMN - n, "");
	wrap(out, text, NAME_COLUMN, NAME_COLUMN);
}

static void print_options(FILE *out, const struct option_row *table)
{
	char name[80];

	for (const struct option_row *row = table; row && row->name; row++) {
		print_named(out, options_format(row, name, sizeof(name)), row->help);
	}
}

static void print_exits(FILE *out)
{
	char codes[512];
	size_t n = 0;

	for (const struct ctl_exit_row *row = ctl_exits; row->brief && n < sizeof(codes); row++)
		n += (size_t)snprintf(codes + n, sizeof(codes) - n, "%s%d %s", n ? ", " : "",
			(int)row->code, row->brief);
	fputs("  ", out);
	wrap(out, codes, 2, 2);
}

/* The verbs that begin with this word; NULL: all. */
static void print_verbs(FILE *out, const char *first)
{
	char name[80];

	fputs("verbs:\n", out);
	for (size_t i = 0; i < n_verbs; i++) {
		if (first && !verb_table_begins(verbs[i], first))
			continue;
		snprintf(name, sizeof(name), "%s %s", verbs[i]->name, verbs[i]->args);
		print_named(out, name, verbs[i]->summary);
	}
}

static void print_overview(FILE *out)
{
	fputs("usage: gpt2ctl [--socket PATH] [--json] VERB [OPTIONS] [ARGUMENTS]\n\n", out);
	print_verbs(out, NULL);
	fputs("\noptions of every verb:\n", out);
	print_options(out, global_options);
	fputs("\nexit codes:\n", out);
	print_exits(out);
	fputs("\nmore: gpt2ctl help VERB, gpt2ctl(1), gpt2d-spec(5)\n", out);
}

void help_print_to(FILE *out, const struct verb *verb)
{
	if (!verb) {
		print_overview(out);
		return;
	}
	fprintf(out, "usage: gpt2ctl %s%s%s%s\n\n", verb->name, verb->options ? " [OPTIONS]" : "",
		*verb->args ? " " : "", verb->args);
	wrap(out, verb->summary, 0, 0);
	if (*verb->text) {
		fputc('\n', out);
		wrap(out, verb->text, 0, 0);
	}
	fputs("\noptions:\n", out);
	print_options(out, verb->options);
	print_options(out, global_options);
}

static json_t *options_json(const struct option_row *table)
{
	json_t *rows = json_array();

	for (const struct option_row *row = table; row && row->name; row++)
		json_array_append_new(rows,
			json_pack("{s:s, s:s?, s:s}", "name", row->name, "arg", row->arg, "help",
				row->help));
	return rows;
}

static json_t *verb_json(const struct verb *verb)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", verb->name, "args", verb->args,
		"summary", verb->summary, "text", verb->text, "options",
		options_json(verb->options));
}

/* The first word of several verbs. */
static bool is_group(const char *word)
{
	size_t n = 0;

	for (size_t i = 0; i < n_verbs; i++)
		n += verb_table_begins(verbs[i], word);
	return n > 1;
}

void help_print(struct ctl *ctl, const struct verb *verb, const char *half)
{
	const bool group = !verb && half && is_group(half);
	FILE *out = ctl->output.out.file;
	json_t *object, *rows;

	if (!verb && half && !group)
		verb = verb_table_find_half(half);
	if (!ctl->output.json && group) {
		fprintf(out, "usage: gpt2ctl %s VERB [OPTIONS] [ARGUMENTS]\n\n", half);
		print_verbs(out, half);
		fprintf(out, "\nmore: gpt2ctl help %s VERB\n", half);
		return;
	}
	if (!ctl->output.json) {
		help_print_to(out, verb);
		return;
	}
	rows = json_array();
	for (size_t i = 0; i < n_verbs; i++) {
		if (group ? verb_table_begins(verbs[i], half) : !verb || verb == verbs[i])
			json_array_append_new(rows, verb_json(verbs[i]));
	}
	object = json_pack("{s:o, s:o}", "verbs", rows, "options", options_json(global_options));
	output_print(&ctl->output, "help", object, NULL);
	json_decref(object);
}

/* ---- the verb ---- */

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const char *half = args->n_words == 1 ? args->words[0] : NULL;
	const struct verb *verb = NULL;
	size_t used = 0;
	int exit = 0;

	if (args->n_words > 0)
		verb = verb_table_find(args->words, args->n_words, &used);
	if (!verb && half && verb_table_find_half(half))
		used = 1;
	if (args->n_words > 0 && used == 0)
		exit = verb_table_unknown(args->words, args->n_words, e);
	else if (used < args->n_words)
		exit = ctl_error_set(e, CTL_USAGE,
			"help: %s: unexpected argument\n"
			"see: gpt2ctl help help",
			args->words[used]);
	else
		help_print(ctl, verb, half);
	return exit;
}

const struct verb verb_help = {
	.name = "help",
	.args = "[VERB]",
	.max_args = 2,
	.summary = "print this overview, or what a verb does and its options",
	.text = "",
	.run = run,
};

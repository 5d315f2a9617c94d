/*
 * gpt2ctl completion: the candidates for the word at the cursor, and the scripts for the shells.
 * The scripts call gpt2ctl itself, so they do not change with the verb table. Verbs, options and
 * choices come from the verb table, keys from the spec's table, runs from gpt2d.
 */
#include "ctl/completion.h"

#include <errno.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/states.h"
#include "ctl/verb_table.h"
#include "proto/host/clock.h"
#include "proto/spec/spec_table.h"

enum { RUNS_MAX = 100, PATIENCE_MS = 700 };

/* The last word: the fixed part ("--set=") and the rest, which is completed. */
struct place {
	struct client_options link;
	FILE *out;
	const char *fixed;
	size_t n_fixed;
	const char *rest;
	bool unended; /* leave out runs that have ended */
};

static void offer_about(const struct place *p, const char *word, const char *what)
{
	if (strncmp(word, p->rest, strlen(p->rest)) != 0)
		return;
	fprintf(p->out, "%.*s%s\t%s\n", (int)p->n_fixed, p->fixed, word, what);
}

/* ---- kinds of values ---- */

static void offer_files(const struct place *p)
{
	fputs(":files\n", p->out);
}

static void offer_dirs(const struct place *p)
{
	fputs(":dirs\n", p->out);
}

static void offer_states(const struct place *p)
{
	for (const struct states_row *row = states_table; row->name; row++)
		offer_about(p, row->name, row->what);
}

/* A key, or after "KEY=" its values. */
static void offer_settings(const struct place *p)
{
	const char *equals = strchr(p->rest, '=');
	char word[256];

	for (size_t i = 0; i < SPEC_KEY_COUNT; i++) {
		const struct spec_row *row = &spec_table[i];
		const size_t n = strlen(row->key);

		if (row->type == SPEC_TYPE_OBJECT || row->type == SPEC_TYPE_ARMS ||
			row->type == SPEC_TYPE_SWEEP)
			continue;
		if (!equals) {
			snprintf(word, sizeof(word), "%s=", row->key);
			offer_about(p, word, row->help);
			continue;
		}
		if (n != (size_t)(equals - p->rest) || strncmp(row->key, p->rest, n) != 0)
			continue;
		for (const struct spec_choice *c = row->choices; c && c->name; c++) {
			snprintf(word, sizeof(word), "%s=%s", row->key, c->name);
			offer_about(p, word, "");
		}
		for (int yes = 0; row->type == SPEC_TYPE_BOOL && yes < 2; yes++) {
			snprintf(word, sizeof(word), "%s=%s", row->key, yes ? "true" : "false");
			offer_about(p, word, "");
		}
	}
}

/* Candidates for a run: its ID, or the beginning of its name. */
static void offer_run(const struct place *p, const json_t *run)
{
	char id[32], name[80], state[32], what[128];
	const char *begin = p->rest;

	format_string(run, "id", "", id, sizeof(id));
	format_string(run, "name", "", name, sizeof(name));
	format_string(run, "state", "", state, sizeof(state));
	if (p->unended && strcmp(state, "queued") != 0 &&
		json_is_string(json_object_get(run, "ended_at")))
		return;
	if (strncmp(id, begin, strlen(begin)) != 0 && strncmp(name, begin, strlen(begin)) != 0)
		return;
	snprintf(what, sizeof(what), "%s, %s", name, state);
	fprintf(p->out, "%.*s%s\t%s\n", (int)p->n_fixed, p->fixed, id, what);
}

static void offer_runs(const struct place *p)
{
	struct client_options link = p->link;
	struct ctl_error e = {0};
	json_t *reply, *run;
	size_t i;

	/* a stopped or busy gpt2d must not delay the shell */
	link.until_ns = clock_mono_ns() + PATIENCE_MS * CLOCK_MS_NS;
	link.notices = NULL;
	if (client_ask(&link, METHOD_LIST, json_pack("{s:b, s:i}", "newest", 1, "limit", RUNS_MAX),
		    &reply, &e) != 0) {
		ctl_error_clear(&e);
		return;
	}
	json_array_foreach(json_object_get(reply, "runs"), i, run)
		offer_run(p, run);
	json_decref(reply);
}

/* Whether an earlier verb begins with the same word. */
static bool seen_before(size_t i, size_t n)
{
	for (size_t k = 0; k < i; k++) {
		if (strncmp(verbs[k]->name, verbs[i]->name, n) == 0 &&
			(verbs[k]->name[n] == ' ' || !verbs[k]->name[n]))
			return true;
	}
	return false;
}

/* The first word of each verb, once; or the second words of verbs that begin with first. */
static void offer_verbs(const struct place *p, const char *first)
{
	char word[64];

	for (size_t i = 0; i < n_verbs; i++) {
		const char *name = verbs[i]->name;
		const size_t n = strcspn(name, " ");

		snprintf(word, sizeof(word), "%.*s", (int)n, name);
		if (first && name[n] && strcmp(word, first) == 0)
			offer_about(p, name + n + 1, verbs[i]->summary);
		else if (!first && !seen_before(i, n))
			offer_about(p, word, name[n] ? "" : verbs[i]->summary);
	}
}

static void offer_all_verbs(const struct place *p)
{
	offer_verbs(p, NULL);
}

static const struct {
	const char *called;
	void (*offer)(const struct place *p);
} kinds[] = {
	{"ID", offer_runs},
	{"FILE", offer_files},
	{"PATH", offer_files},
	{"IN", offer_files},
	{"OUT", offer_files},
	{"DIR", offer_dirs},
	{"STATE", offer_states},
	{"KEY=VALUE", offer_settings},
	{"KEY=VALUE,", offer_settings},
	{"VERB", offer_all_verbs},
};

/* One alternative: a kind, or a word in lower case. */
static void offer_one(const struct place *p, const char *called)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].called, called) == 0) {
			kinds[i].offer(p);
			return;
		}
	}
	if (*called >= 'a' && *called <= 'z')
		offer_about(p, called, "");
}

/* meta: "ID...", "[VERB]", "FILE|-", "raw|headed" */
static void offer_value(const struct place *p, const char *called)
{
	char copy[128], *rest = copy, *one;

	snprintf(copy, sizeof(copy), "%s", called[0] == '[' ? called + 1 : called);
	for (size_t n = strlen(copy); n > 0 && strchr("].", copy[n - 1]); n--)
		copy[n - 1] = '\0';
	while ((one = strsep(&rest, "|")) != NULL)
		offer_one(p, one);
}

/* The argument with this number, of a verb's "DIR ID...". */
static void offer_argument(const struct place *p, const struct verb *verb, size_t number)
{
	char copy[128], *rest = copy, *one;
	size_t at = 0;

	snprintf(copy, sizeof(copy), "%s", verb->args);
	while ((one = strsep(&rest, " ")) != NULL) {
		if (at == number || (!rest && at < number && strstr(one, "..."))) {
			offer_value(p, one);
			return;
		}
		at++;
	}
}

/* ---- options ---- */

static void offer_options(const struct place *p, const struct option_row *table)
{
	char word[64];

	for (const struct option_row *row = table; row && row->name; row++) {
		snprintf(word, sizeof(word), "--%s", row->name);
		offer_about(p, word, row->help);
	}
}

static const struct option_row *find_option(const struct verb *verb, const char *name, size_t n)
{
	const struct options o = {.tables = {global_options, verb ? verb->options : NULL}};

	return options_find(&o, name, n);
}

/* The option in word whose value is the next word, or NULL. */
static const struct option_row *wants_value(const struct verb *verb, const char *word)
{
	const struct option_row *row;

	if (word[1] == '-') {
		if (strchr(word, '='))
			return NULL;
		row = find_option(verb, word + 2, strlen(word + 2));
		return row && row->kind != OPTION_FLAG ? row : NULL;
	}
	for (const char *letter = word + 1; *letter; letter++) {
		row = find_option(verb, letter, 1);
		if (!row || row->kind != OPTION_FLAG)
			return row && !letter[1] ? row : NULL;
	}
	return NULL;
}

/* ---- the command line so far ---- */

struct line {
	const struct verb *verb;
	const char *half;               /* the first word of a verb with two words */
	size_t n_arguments;             /* before the last word */
	bool options;                   /* no "--" so far */
	const struct option_row *value; /* the last word is its value */
	const char *socket;
};

static void take_word(struct line *l, const char *const *words)
{
	const char *pair[2] = {l->half ? l->half : words[0], words[0]};
	size_t used;

	if (l->verb) {
		l->n_arguments++;
		return;
	}
	l->verb = verb_table_find(pair, l->half ? 2 : 1, &used);
	l->half = l->verb ? NULL : words[0];
}

static void read_line(struct line *l, const char *const *words, size_t n)
{
	*l = (struct line){.options = true};
	for (size_t i = 0; i + 1 < n; i++) {
		if (l->value) {
			if (strcmp(l->value->name, "socket") == 0)
				l->socket = words[i];
			l->value = NULL;
		} else if (l->options && strcmp(words[i], "--") == 0) {
			l->options = false;
		} else if (l->options && options_is_option(words[i])) {
			l->value = wants_value(l->verb, words[i]);
			if (strncmp(words[i], "--socket=", 9) == 0)
				l->socket = words[i] + 9;
		} else {
			take_word(l, words + i);
		}
	}
}

/*
 * words: the command line without the program's name, up to the word with the cursor, which may be
 * empty. Prints a line for each candidate: the word, a tab, a description. A line ":files" or
 * ":dirs" means that file names or directories are possible too.
 */
static void complete_words(const struct ctl *ctl, const char *const *words, size_t n, FILE *out)
{
	const char *last = n > 0 ? words[n - 1] : "";
	const char *equals = strchr(last, '=');
	struct place p = {.link = ctl->link, .out = out, .fixed = last, .rest = last};
	const struct option_row *row;
	struct line l;

	read_line(&l, words, n);
	if (l.socket)
		p.link.socket = l.socket;
	p.unended = l.verb && l.verb->unended;
	if (l.value) {
		offer_value(&p, l.value->arg);
	} else if (l.options && strncmp(last, "--", 2) == 0 && equals) {
		row = find_option(l.verb, last + 2, (size_t)(equals - last) - 2);
		p.rest = equals + 1;
		p.n_fixed = (size_t)(p.rest - last);
		if (row && row->kind != OPTION_FLAG)
			offer_value(&p, row->arg);
	} else if (l.options && last[0] == '-') {
		offer_options(&p, l.verb ? l.verb->options : NULL);
		offer_options(&p, global_options);
	} else if (l.verb) {
		offer_argument(&p, l.verb, l.n_arguments);
	} else {
		offer_verbs(&p, l.half);
	}
}

/* ---- scripts ---- */

/*
 * bash breaks words at "=" too: the script joins them again and removes the part before the last
 * break from the candidates.
 */
static const char bash[] =
	"# bash completion of gpt2ctl\n"
	"_gpt2ctl()\n"
	"{\n"
	"\tlocal program=gpt2ctl words=() word joined= fixed i\n"
	"\ttype -P \"$1\" >/dev/null && program=$1\n"
	"\tfor ((i = 1; i <= COMP_CWORD; i++)); do\n"
	"\t\tword=${COMP_WORDS[i]}\n"
	"\t\tif [[ ${#words[@]} -gt 0 && ( $word == = || -n $joined ) ]]; then\n"
	"\t\t\twords[-1]+=$word\n"
	"\t\t\t[[ $word == = ]] && joined=1 || joined=\n"
	"\t\telse\n"
	"\t\t\twords+=(\"$word\")\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tword=${COMP_WORDS[COMP_CWORD]}\n"
	"\t[[ $word == = ]] && word=\n"
	"\tfixed=${words[-1]%\"$word\"}\n"
	"\tCOMPREPLY=()\n"
	"\twhile IFS=$'\\t' read -r word _; do\n"
	"\t\tcase $word in\n"
	"\t\t:files) compopt -o default ;;\n"
	"\t\t:dirs) compopt -o dirnames ;;\n"
	"\t\t*=) compopt -o nospace; COMPREPLY+=(\"${word#\"$fixed\"}\") ;;\n"
	"\t\t*) COMPREPLY+=(\"${word#\"$fixed\"}\") ;;\n"
	"\t\tesac\n"
	"\tdone < <(\"$program\" completion --words -- \"${words[@]}\" 2>/dev/null)\n"
	"}\n"
	"complete -F _gpt2ctl gpt2ctl\n";

static const char zsh[] =
	"#compdef gpt2ctl\n"
	"# zsh completion of gpt2ctl\n"
	"_gpt2ctl()\n"
	"{\n"
	"\tlocal line word about program=gpt2ctl\n"
	"\tlocal -a typed plain plain_about open\n"
	"\ttyped=(\"${(@Q)words[2,CURRENT]}\")\n"
	"\twhence -p -- \"${(Q)words[1]}\" >/dev/null && program=${(Q)words[1]}\n"
	"\tfor line in \"${(@f)$(\"$program\" completion --words -- \"${typed[@]}\" "
	"2>/dev/null)}\"; do\n"
	"\t\tword=${line%%$'\\t'*}\n"
	"\t\tcase $word in\n"
	"\t\t:files) _files ;;\n"
	"\t\t:dirs) _files -/ ;;\n"
	"\t\t*=) open+=(\"$word\") ;;\n"
	"\t\t?*)\n"
	"\t\t\tabout=${line#*$'\\t'}\n"
	"\t\t\tplain+=(\"$word\"); plain_about+=(\"$word${about:+  -- $about}\") ;;\n"
	"\t\tesac\n"
	"\tdone\n"
	"\t(( $#open )) && compadd -S '' -a open\n"
	"\t(( $#plain )) && compadd -l -d plain_about -a plain\n"
	"}\n"
	"if [ \"$funcstack[1]\" = _gpt2ctl ]; then\n"
	"\t_gpt2ctl \"$@\"\n"
	"else\n"
	"\tcompdef _gpt2ctl gpt2ctl\n"
	"fi\n";

static const char fish[] =
	"# fish completion of gpt2ctl\n"
	"function __gpt2ctl_words\n"
	"\tset -l typed (commandline -opc) (commandline -ct)\"\"\n"
	"\tset -l program gpt2ctl\n"
	"\ttype -q -f -- $typed[1]; and set program $typed[1]\n"
	"\tfor line in ($program completion --words -- $typed[2..-1] 2>/dev/null)\n"
	"\t\tswitch $line\n"
	"\t\t\tcase ':files'\n"
	"\t\t\t\t__fish_complete_path $typed[-1]\n"
	"\t\t\tcase ':dirs'\n"
	"\t\t\t\t__fish_complete_directories $typed[-1]\n"
	"\t\t\tcase '*'\n"
	"\t\t\t\techo $line\n"
	"\t\tend\n"
	"\tend\n"
	"end\n"
	"complete -c gpt2ctl -f -k -a '(__gpt2ctl_words)'\n";

static const struct {
	const char *shell, *script;
} scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

int completion_print(const char *shell, FILE *out)
{
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (strcmp(scripts[i].shell, shell) == 0) {
			fputs(scripts[i].script, out);
			return 0;
		}
	}
	return -EINVAL;
}

static const struct option_row options[] = {
	{"words", 0, OPTION_FLAG, NULL, 0, 0,
		"print the candidates for the last of the given words, one per line; the scripts "
		"call this, see COMPLETION in gpt2ctl(1)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{

	if (options_has(args, "words")) {
		complete_words(ctl, args->words, args->n_words, ctl->output.out.file);
		return CTL_OK;
	}
	if (args->n_words == 1 && completion_print(args->words[0], ctl->output.out.file) == 0)
		return CTL_OK;
	if (args->n_words == 0)
		ctl_error_set(e, CTL_USAGE, "completion: missing shell (bash, zsh or fish)");
	else
		ctl_error_set(e, CTL_USAGE,
			"completion: %.80s: unknown shell (expected bash, zsh or fish)",
			args->words[args->n_words == 1 ? 0 : 1]);
	return e->exit;
}

const struct verb verb_completion = {
	.name = "completion",
	.args = "bash|zsh|fish",
	.max_args = -1,
	.summary = "print a script with which a shell completes gpt2ctl's command line",
	.text = "The script completes verbs, options, keys of a spec after --set, files, and the "
		"runs of the daemon. gpt2d's packages install the scripts where the shells find "
		"them. Otherwise put into ~/.bashrc: eval \"$(gpt2ctl completion bash)\"; into "
		"~/.zshrc, after compinit: eval \"$(gpt2ctl completion zsh)\"; into "
		"~/.config/fish/config.fish: gpt2ctl completion fish | source.",
	.options = options,
	.run = run,
};

#include "ctl/complete.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/print/format.h"
#include "ctl/print/states.h"
#include "ctl/verbs/verb.h"
#include "proto/spec/spec_table.h"

enum { RUNS_MAX = 100 };

/* The last word as far as it is fixed ("--set=") and the rest of it, which is looked for. */
struct place {
	const struct ctl *ctl;
	const char *socket; /* of the command line that is completed, or NULL */
	FILE *out;
	const char *fixed;
	size_t n_fixed;
	const char *rest;
	bool unended; /* no runs that have ended */
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

/* A key, or behind its = what it can be. */
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

static void give_up(int number)
{
	_exit(0);
}

/* A daemon that is stopped or busy must not hold up a shell. */
static void limit_time(void)
{
	const struct itimerval limit = {
		.it_value = {.tv_usec = (suseconds_t)COMPLETE_PATIENCE_MS * 1000}};
	struct sigaction action = {.sa_handler = give_up};

	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &limit, NULL);
}

/* A run by its id, or by the beginning of its name. */
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
	struct ctl ctl = *p->ctl;
	struct ctl_error e = {0};
	json_t *reply, *run;
	size_t i;

	fflush(p->out);
	limit_time();
	if (p->socket)
		ctl.socket = p->socket;
	if (client_ask(&ctl, METHOD_LIST, json_pack("{s:b, s:i}", "newest", 1, "limit", RUNS_MAX),
		    &reply, &e) != 0) {
		ctl_error_clear(&e);
		return;
	}
	json_array_foreach(json_object_get(reply, "runs"), i, run)
		offer_run(p, run);
	json_decref(reply);
}

/* Does a verb before this one begin with the same word? */
static bool seen_before(size_t i, size_t n)
{
	for (size_t k = 0; k < i; k++) {
		if (strncmp(verbs[k]->name, verbs[i]->name, n) == 0 &&
			(verbs[k]->name[n] == ' ' || !verbs[k]->name[n]))
			return true;
	}
	return false;
}

/* Their first words, each once; or what follows first in verbs of two. */
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
	{"VERB", offer_all_verbs},
};

/* One of what | separates: a kind, or in lower case the word itself. */
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

/* called: "ID...", "[VERB]", "FILE|-", "raw|headed" */
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

/* The option in word whose value is the next word, or NULL. */
static const struct option_row *wants_value(const struct verb *verb, const char *word)
{
	const struct option_row *row;

	if (word[1] == '-') {
		if (strchr(word, '='))
			return NULL;
		row = arguments_row(verb, word + 2, strlen(word + 2));
		return row && row->kind != OPTION_FLAG ? row : NULL;
	}
	for (const char *letter = word + 1; *letter; letter++) {
		row = arguments_row(verb, letter, 1);
		if (!row || row->kind != OPTION_FLAG)
			return row && !letter[1] ? row : NULL;
	}
	return NULL;
}

/* ---- the command line so far ---- */

struct line {
	const struct verb *verb;
	const char *half;               /* the first word of a verb of two, as yet alone */
	size_t n_arguments;             /* before the last word */
	bool options;                   /* no -- yet */
	const struct option_row *value; /* the last word is its value */
	const char *socket;
};

static void take_word(struct line *l, char *const *words)
{
	const char *pair[2] = {l->half ? l->half : words[0], words[0]};
	size_t used;

	if (l->verb) {
		l->n_arguments++;
		return;
	}
	l->verb = verb_find((char *const *)pair, l->half ? 2 : 1, &used);
	l->half = l->verb ? NULL : words[0];
}

static void read_line(struct line *l, char *const *words, size_t n)
{
	*l = (struct line){.options = true};
	for (size_t i = 0; i + 1 < n; i++) {
		if (l->value) {
			if (strcmp(l->value->name, "socket") == 0)
				l->socket = words[i];
			l->value = NULL;
		} else if (l->options && strcmp(words[i], "--") == 0) {
			l->options = false;
		} else if (l->options && arguments_is_option(words[i])) {
			l->value = wants_value(l->verb, words[i]);
			if (strncmp(words[i], "--socket=", 9) == 0)
				l->socket = words[i] + 9;
		} else {
			take_word(l, words + i);
		}
	}
}

void complete_words(const struct ctl *ctl, char *const *words, size_t n, FILE *out)
{
	const char *last = n > 0 ? words[n - 1] : "";
	const char *equals = strchr(last, '=');
	struct place p = {.ctl = ctl, .out = out, .fixed = last, .rest = last};
	const struct option_row *row;
	struct line l;

	read_line(&l, words, n);
	p.socket = l.socket;
	p.unended = l.verb && l.verb->unended;
	if (l.value) {
		offer_value(&p, l.value->arg);
	} else if (l.options && strncmp(last, "--", 2) == 0 && equals) {
		row = arguments_row(l.verb, last + 2, (size_t)(equals - last) - 2);
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

/* gpt2ctl submit: a spec, checked here first, to the daemon's queue. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/link/exits.h"
#include "ctl/verbs/follow.h"
#include "ctl/print/format.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/output.h"
#include "ctl/print/spec_rows.h"
#include "ctl/verbs/submit.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/spec/spec.h"

const struct option_row submit_options[] = {
	{"follow", 'f', OPTION_FLAG, NULL, 0, 0,
		"show its progress; the exit code is the run's result"},
	{"dry-run", 'n', OPTION_FLAG, NULL, 0, 0,
		"queue nothing: print the effective bucket plan, memory, data and work of each "
		"arm"},
	{"verbose", 'v', OPTION_FLAG, NULL, 0, 0, "with --dry-run: print the resolved spec too"},
	{"priority", 'p', OPTION_INT, "N", -PROTOCOL_PRIORITY_MAX, PROTOCOL_PRIORITY_MAX,
		"start before queued runs of a lower one; default 0; above it for admins"},
	{"print-id", 0, OPTION_FLAG, NULL, 0, 0,
		"print the run's id alone on stdout; progress goes to stderr"},
	{"name", 0, OPTION_STRING, "NAME", 0, 0, "the run's name, whatever the spec says"},
	{"set", 0, OPTION_STRING, "KEY=VALUE", 0, 0,
		"override a key of the spec, as zero_optimization.reduce_bucket_size=2e7; may be "
		"repeated",
		true},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* ---- reading ---- */

/*
 * At most max bytes and one more of a file: 0 with *text (malloc'd) and *n, or an exit code with e.
 */
static int read_file(const char *file, size_t max, char **text, size_t *n, struct ctl_error *e)
{
	const bool is_stdin = strcmp(file, "-") == 0;
	const int fd = is_stdin ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	char *bytes = malloc(max + 1);
	size_t used = 0;
	int exit = 0;

	if (fd < 0 || !bytes) {
		exit = ctl_error_set(e, CTL_USAGE, "%.800s: %s", *file ? file : "\"\"",
			strerror(fd < 0 ? errno : ENOMEM));
		goto out;
	}
	while (used <= max) {
		const ssize_t k = read(fd, bytes + used, max + 1 - used);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			exit = ctl_error_set(e, CTL_USAGE, "%.800s: %s", file, strerror(errno));
			goto out;
		}
		if (k == 0)
			break;
		used += (size_t)k;
	}
	if (used > max) {
		exit = ctl_error_set(
			e, CTL_USAGE, "%s: a spec has at most %zu bytes, this has more", file, max);
		goto out;
	}
	*text = bytes;
	*n = used;
	bytes = NULL;
out:
	free(bytes);
	if (fd >= 0 && !is_stdin)
		close(fd);
	return exit;
}

/* The absolute folder that a spec's relative paths start from; malloc'd, NULL with errno. */
static char *base_folder(const char *file)
{
	char *copy, *folder;

	if (strcmp(file, "-") == 0)
		return realpath(".", NULL);
	copy = strdup(file);
	if (!copy)
		return NULL;
	folder = realpath(dirname(copy), NULL);
	free(copy);
	return folder;
}

/*
 * What the reader calls --set name is --name where that was given. A run that is queued again has
 * no file whose lines anybody sees.
 */
static void report_spec(struct ctl *ctl, const struct arguments *args,
	const struct submit_source *source, const struct spec_errors *errors)
{
	const bool name_given =
		arguments_string(args, "name", NULL) && !spec_rows_is_set(args, "name");
	char advice[SPEC_ROWS_ADVICE], message[sizeof(errors->error[0].message) + SPEC_ROWS_ADVICE];
	json_t *rows = json_array(), *sorted;

	for (size_t i = 0; i < errors->n; i++) {
		const struct spec_error *row = &errors->error[i];
		const bool of_name = name_given && strcmp(row->key, "--set name") == 0;
		const bool advised =
			spec_rows_advise_gpus(args, source, row->key, advice, sizeof(advice));

		snprintf(message, sizeof(message), "%s%s%s", row->message, advised ? "; " : "",
			advised ? advice : "");
		json_array_append_new(rows,
			json_pack("{s:i, s:i, s:o, s:o}", "line",
				source->rerun_of == 0 ? row->at.line : 0, "column",
				source->rerun_of == 0 ? row->at.column : 0, "key",
				format_json_text(of_name ? "--name" : row->key), "message",
				format_json_text(message)));
	}
	sorted = spec_rows_sorted(rows);
	json_decref(rows);
	if (errors->dropped > 0) {
		char more[64];

		snprintf(more, sizeof(more), "and %zu more errors", errors->dropped);
		json_array_append_new(sorted,
			json_pack("{s:i, s:i, s:s, s:s}", "line", 0, "column", 0, "key", "",
				"message", more));
	}
	ctl->output->spec_errors(ctl, source->name, sorted);
	json_decref(sorted);
}

/* name="..." as --set wants it; malloc'd, NULL when it is no UTF-8 or without memory. */
static char *set_name(const char *name)
{
	json_t *text = json_string(name);
	char *quoted = json_dumps(text, JSON_ENCODE_ANY), *set = NULL;
	const size_t n = quoted ? strlen(quoted) + sizeof("name=") : 0;

	json_decref(text);
	set = quoted ? malloc(n) : NULL;
	if (set)
		snprintf(set, n, "name=%s", quoted);
	free(quoted);
	return set;
}

/* The canonical spec, malloc'd; NULL after errors that are reported, with *exit. */
static char *parse(struct ctl *ctl, const struct arguments *args,
	const struct submit_source *source, int *exit)
{
	const char **sets = calloc(args->n_values + 1, sizeof(*sets));
	struct spec_options how = {.base_dir = source->folder, .sets = sets};
	struct spec_errors *errors = calloc(1, sizeof(*errors));
	const char *name = arguments_string(args, "name", NULL);
	char *canonical = NULL, *named = name ? set_name(name) : NULL;
	struct spec *spec = NULL;
	struct ctl_error e = {0};
	int error = -ENOMEM;

	*exit = 0;
	for (size_t i = 0; sets && i < args->n_values; i++) {
		if (strcmp(args->values[i].row->name, "set") == 0)
			sets[how.n_sets++] = args->values[i].text;
	}
	if (sets && named)
		sets[how.n_sets++] = named;
	if (name && !named) {
		*exit = ctl_error_set(&e, CTL_USAGE, "--name: it is not UTF-8");
	} else if (sets && errors) {
		error = spec_parse(source->text, source->n, &how, &spec, errors);
		if (error == -EINVAL) {
			report_spec(ctl, args, source, errors);
			*exit = CTL_USAGE;
			goto out;
		}
	}
	canonical = error ? NULL : spec_canonical(spec);
	if (!canonical && !*exit)
		*exit = ctl_error_set(&e, CTL_TRANSPORT, "%s: out of memory", source->name);
	if (!canonical)
		ctl_fail(ctl, &e);
out:
	spec_free(spec);
	free(named);
	free(errors);
	free(sets);
	return canonical;
}

/* ---- sending ---- */

#define WHERE_SAID "what gpt2d and its engines said: gpt2ctl logs"

static void add_line(struct ctl_error *e, const char *line)
{
	char why[sizeof(e->message)];

	memcpy(why, e->message, sizeof(why));
	ctl_error_set(e, e->exit, "%.1300s\n%s", why, line);
}

/*
 * The daemon's refusal of a spec has rows like ours. A connection that broke after a run was sent
 * leaves open whether it was queued.
 */
static int refused(struct ctl *ctl, const struct arguments *args,
	const struct submit_source *source, const json_t *spec, bool sent, struct ctl_error *e)
{
	const json_t *rows = json_object_get(e->data, "errors");
	const bool certain = json_is_false(json_object_get(e->data, "queued"));
	json_t *placed;

	if (sent && e->exit == CTL_TIMEOUT)
		add_line(e, "it may still queue the run; whether it has: gpt2ctl list");
	else if (sent && !e->data && (exits_leave_open(e->exit) || e->exit == CTL_CANCELLED))
		add_line(e, "whether the run is queued is not known: gpt2ctl list");
	if (!sent && e->code == PROTOCOL_INTERNAL)
		add_line(e, WHERE_SAID);
	/* of a store that cannot be written the message itself says it */
	if (sent && certain && e->code != PROTOCOL_STORE)
		add_line(e,
			e->code == PROTOCOL_INTERNAL ? "the run is not queued; " WHERE_SAID
						     : "the run is not queued");
	if (e->exit != CTL_USAGE || json_array_size(rows) == 0)
		return ctl_fail(ctl, e);
	placed = spec_rows_place(args, source, spec, rows);
	ctl->output->spec_errors(ctl, source->name, placed);
	json_decref(placed);
	ctl_error_clear(e);
	return CTL_USAGE;
}

/* What people want beside the reply: the arms, where artifacts will lie, what is odd. */
static void complete(struct client *c, const json_t *spec, json_t *reply)
{
	json_t *params =
		json_pack("{s:I, s:i}", "id", (json_int_t)format_int(reply, "id", 0), "limit", 1);
	const json_t *arms = json_object_get(spec, "arms"), *dir;
	json_t *names = json_array(), *shown = NULL;
	struct ctl_error e = {0};
	const char *name;
	json_t *arm;

	json_object_foreach((json_t *)arms, name, arm)
		json_array_append_new(names, json_string(name));
	json_object_set_new(reply, "arms", names);
	/* the run is queued all the same when this cannot be told */
	if (client_request(c, METHOD_SHOW, params, CLIENT_REPLY_S, &shown, &e) == 0) {
		dir = json_object_get(json_object_get(shown, "run"), "dir");
		json_object_set(reply, "dir", (json_t *)dir);
		json_object_set_new(
			reply, "warnings", text_warnings(json_object_get(shown, "checks")));
	}
	ctl_error_clear(&e);
	json_decref(shown);
}

static void print_submitted(struct ctl *ctl, const struct arguments *args, struct client *c,
	const json_t *spec, json_t *reply)
{
	const long long id = format_int(reply, "id", 0);

	if (arguments_has(args, "print-id"))
		fprintf(ctl->out.file, "%lld\n", id);
	else {
		complete(c, spec, reply);
		ctl->output->submitted(ctl, reply);
	}
	/* whoever takes the exit code for a refusal would train twice */
	if (!output_goes_on(ctl))
		fprintf(ctl->err.file, "gpt2ctl: run %lld is queued\n", id);
}

static int send(struct ctl *ctl, const struct arguments *args, const struct submit_source *source,
	const char *text)
{
	const bool dry_run = arguments_has(args, "dry-run");
	const bool print_id = arguments_has(args, "print-id");
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *params = json_pack("{s:s}", "spec", text), *reply = NULL;
	json_t *spec = json_loads(text, 0, NULL);
	int exit;

	interrupt_begin(); /* what became of the run is told */
	exit = client_open(ctl, &c, &e);
	if (!dry_run && arguments_has(args, "priority"))
		json_object_set_new(
			params, "priority", json_integer(arguments_int(args, "priority", 0)));
	if (!dry_run && source->rerun_of > 0)
		json_object_set_new(params, "rerun_of", json_integer(source->rerun_of));
	if (exit)
		json_decref(params);
	else
		exit = client_request(c, dry_run ? METHOD_DRY_RUN : METHOD_SUBMIT, params,
			CLIENT_CHECK_S, &reply, &e);
	if (exit && dry_run && c && client_lost(c) && !client_untaken(c))
		add_line(&e, "nothing is queued");
	if (exit) {
		exit = refused(ctl, args, source, spec, c && !dry_run && !client_untaken(c), &e);
		goto out;
	}
	if (dry_run) {
		ctl->output->dry_run(ctl, reply, arguments_has(args, "verbose"));
		goto out;
	}
	print_submitted(ctl, args, c, spec, reply);
	if (arguments_has(args, "follow"))
		exit = follow_run(ctl, &c, format_int(reply, "id", 0), !print_id,
			print_id ? &ctl->err : &ctl->out);
out:
	json_decref(spec);
	json_decref(reply);
	client_close(c);
	return exit;
}

int submit_check(struct ctl *ctl, const struct arguments *args)
{
	const char *verb = args->verb->name;
	struct ctl_error e = {0};

	if (arguments_has(args, "dry-run") &&
		(arguments_has(args, "follow") || arguments_has(args, "print-id")))
		ctl_error_set(&e, CTL_USAGE,
			"%s: --dry-run queues nothing: no --follow or --print-id with it", verb);
	else if (arguments_has(args, "verbose") && !arguments_has(args, "dry-run"))
		ctl_error_set(&e, CTL_USAGE, "%s: --verbose is for --dry-run", verb);
	else if (ctl->json && arguments_has(args, "print-id"))
		ctl_error_set(&e, CTL_USAGE, "%s: --print-id or --json, not both", verb);
	return e.exit ? ctl_fail(ctl, &e) : 0;
}

int submit_send(struct ctl *ctl, const struct arguments *args, const struct submit_source *source)
{
	int exit;
	char *text = parse(ctl, args, source, &exit);

	if (!text)
		return exit;
	exit = send(ctl, args, source, text);
	free(text);
	return exit;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const char *file = args->words[0];
	struct ctl_error e = {0};
	char *folder = NULL, *text = NULL;
	size_t n = 0;
	int exit = submit_check(ctl, args);

	if (exit)
		return exit;
	folder = base_folder(file);
	if (!folder)
		exit = ctl_error_set(&e, CTL_USAGE, "%.800s: %s",
			strcmp(file, "-") == 0 ? "the current folder" : file, strerror(errno));
	else
		exit = read_file(file, SPEC_BYTES_MAX, &text, &n, &e);
	if (exit)
		exit = ctl_fail(ctl, &e);
	else
		exit = submit_send(ctl, args,
			&(struct submit_source){.name = strcmp(file, "-") == 0 ? "stdin" : file,
				.text = text,
				.n = n,
				.folder = folder});
	free(text);
	free(folder);
	return exit;
}

const struct verb verb_submit = {
	.name = "submit",
	.args = "FILE|-",
	.min_args = 1,
	.max_args = 1,
	.summary = "queue a run or an experiment",
	.text = "FILE is a run spec, see gpt2d-spec(5); \"-\" is standard input. All of its errors "
		"are printed as FILE:LINE: KEY: MESSAGE before any daemon is asked. Data paths are "
		"taken from the spec's folder, with \"-\" from the current one. An id is printed "
		"once the run is durable in the daemon's queue.",
	.options = submit_options,
	.run = run,
};

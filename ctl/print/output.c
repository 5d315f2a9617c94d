#include "ctl/print/output.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/states.h"
#include "ctl/print/text.h"
#include "ctl/print/view.h"
#include "proto/spec/spec.h"

/* ---- stdout may be full, or closed ---- */

/* A pipe that nobody reads any more. */
static bool reader_gone(FILE *out)
{
	struct pollfd p = {.fd = fileno(out)};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/*
 * What the write that failed left behind, where that was not the last one; other calls leave other
 * codes.
 */
static bool of_a_write(int error)
{
	static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EBADF, EPIPE};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i] == error)
			return true;
	return false;
}

static void check_stdout(struct ctl *ctl)
{
	const int before = errno;
	FILE *out = ctl->out.file;
	int error;

	if (ctl->out_failed)
		return;
	errno = 0;
	if (fflush(out) == 0 && !ferror(out))
		return;
	if (errno)
		error = errno;
	else if (reader_gone(out))
		error = EPIPE;
	else
		error = of_a_write(before) ? before : EIO;
	ctl->out_failed = true;
	ctl->out_unread = error == EPIPE;
	if (ctl->out_unread)
		return; /* head has what it wanted */
	fprintf(ctl->err.file, "gpt2ctl: stdout: %s\n", strerror(error));
}

bool output_goes_on(struct ctl *ctl)
{
	check_stdout(ctl);
	return !ctl->out_failed;
}

void output_tell_done(struct ctl *ctl, const char *verb)
{
	if (!output_goes_on(ctl))
		fprintf(ctl->err.file, "gpt2ctl: %s: it is done all the same\n", verb);
}

int output_finish(struct ctl *ctl, int exit)
{
	check_stdout(ctl);
	if (ctl->out_unread)
		return CTL_UNREAD;
	return ctl->out_failed ? CTL_TRANSPORT : exit;
}

/* ---- JSON ---- */

static void emit(struct ctl *ctl, const char *kind, const json_t *object)
{
	json_t *line = json_pack("{s:i, s:s}", "schema", OUTPUT_SCHEMA, "kind", kind);
	json_t *copy = json_deep_copy(object);

	if (ctl->out_failed || !line || json_object_update_missing(line, copy) != 0 ||
		json_dumpf(line, ctl->out.file, JSON_COMPACT) != 0 ||
		fputc('\n', ctl->out.file) == EOF) {
		if (!ctl->out_failed && !ferror(ctl->out.file))
			fprintf(ctl->err.file, "gpt2ctl: %s: not an object, or out of memory\n",
				kind);
	}
	json_decref(copy);
	json_decref(line);
	check_stdout(ctl);
}

static void json_submitted(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "submit", reply);
}

static void json_dry_run(struct ctl *ctl, const json_t *reply, bool verbose)
{
	emit(ctl, "dry-run", reply);
}

static void json_status(struct ctl *ctl, const json_t *reply, size_t queue_rows)
{
	emit(ctl, "status", reply);
}

static void json_top(struct ctl *ctl, const json_t *object, const struct view *view)
{
	emit(ctl, "top", object);
}

static void json_list(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "list", reply);
}

static void json_show(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "show", reply);
}

static void print_error(struct ctl *ctl, const char *message)
{
	char clean[sizeof(((struct ctl_error *)0)->message)];

	if (ctl->out_unread)
		return; /* follow's remark that it shows no more */
	term_clean_lines(message, clean, sizeof(clean));
	fprintf(ctl->err.file, "%sgpt2ctl:%s %s\n", term_colour(&ctl->err, TERM_RED),
		term_colour(&ctl->err, TERM_PLAIN), clean);
}

static void json_artifacts(struct ctl *ctl, const json_t *result)
{
	emit(ctl, "artifacts", result);
	text_artifacts_trouble(ctl, result);
}

static void json_logs(struct ctl *ctl, const json_t *result)
{
	emit(ctl, "logs", result);
}

static void json_log_line(struct ctl *ctl, const json_t *line)
{
	emit(ctl, "log", line);
}

static void json_pruned(struct ctl *ctl, const json_t *result)
{
	emit(ctl, "prune", result);
}

static void json_kept(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "keep", reply);
}

static void json_metrics(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "metrics", reply);
}

static void json_compare(struct ctl *ctl, const json_t *comparison)
{
	emit(ctl, "compare", comparison);
}

static void json_cancelled(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "cancel", reply);
}

static void json_gate(struct ctl *ctl, const char *method, const json_t *reply)
{
	emit(ctl, method, reply);
}

static void json_priority(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "priority", reply);
}

static void json_waited(struct ctl *ctl, const json_t *result)
{
	emit(ctl, "wait", result);
}

static void json_prepared(struct ctl *ctl, const json_t *result)
{
	emit(ctl, "data prepare", result);
}

static void json_shutdown(struct ctl *ctl, const json_t *reply)
{
	emit(ctl, "shutdown", reply);
}

static void json_version(struct ctl *ctl, const json_t *versions)
{
	const json_t *error = json_object_get(versions, "error");
	const char *message = json_string_value(json_object_get(error, "message"));

	emit(ctl, "version", versions);
	if (message)
		print_error(ctl, message);
}

static void json_event(
	struct ctl *ctl, struct progress *progress, const char *event, const json_t *params)
{
	emit(ctl, event, params);
}

static void json_error(struct ctl *ctl, const struct ctl_error *error)
{
	json_t *object = json_pack("{s:o}", "error", ctl_error_json(error));

	print_error(ctl, error->message);
	emit(ctl, "error", object);
	json_decref(object);
}

static void print_spec_errors(struct ctl *ctl, const char *file, const json_t *errors)
{
	struct spec_error error;
	char clean[SPEC_PATH_MAX];
	const json_t *row;
	size_t i;

	term_clean(file, clean, sizeof(clean));
	json_array_foreach(errors, i, row) {
		error.at.line = (int)format_int(row, "line", 0);
		error.at.column = (int)format_int(row, "column", 0);
		format_string(row, "key", "", error.key, sizeof(error.key));
		format_string(row, "message", "", error.message, sizeof(error.message));
		spec_error_print(&error, clean, ctl->err.file);
	}
}

static void json_spec_errors(struct ctl *ctl, const char *file, const json_t *errors)
{
	json_t *object =
		json_pack("{s:{s:i, s:s, s:o, s:O}}", "error", "exit", CTL_USAGE, "message",
			"the spec was refused", "file", format_json_text(file), "errors", errors);

	print_spec_errors(ctl, file, errors);
	emit(ctl, "error", object);
	json_decref(object);
}

const struct output output_json = {
	.submitted = json_submitted,
	.dry_run = json_dry_run,
	.status = json_status,
	.top = json_top,
	.list = json_list,
	.show = json_show,
	.artifacts = json_artifacts,
	.logs = json_logs,
	.log_line = json_log_line,
	.pruned = json_pruned,
	.kept = json_kept,
	.metrics = json_metrics,
	.compare = json_compare,
	.cancelled = json_cancelled,
	.gate = json_gate,
	.priority = json_priority,
	.waited = json_waited,
	.prepared = json_prepared,
	.shutdown = json_shutdown,
	.version = json_version,
	.event = json_event,
	.error = json_error,
	.spec_errors = json_spec_errors,
};

/* ---- text of few lines; the rest is in text_*.c ---- */

static void line_waited(struct ctl *ctl, const json_t *result)
{
	char id[32], name[80], state[32], reason[512];
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "runs"), i, row) {
		if (!json_is_string(json_object_get(row, "state")))
			continue; /* its error is told already */
		format_string(row, "id", "?", id, sizeof(id));
		format_string(row, "name", "", name, sizeof(name));
		format_string(row, "state", "?", state, sizeof(state));
		format_string(row, "reason", "", reason, sizeof(reason));
		fprintf(ctl->out.file, "run %s%s%s: %s%s%s%s%s\n", id, *name ? " " : "", name,
			term_colour(&ctl->out, states_colour(state)), state,
			term_colour(&ctl->out, TERM_PLAIN), *reason ? ": " : "",
			text_reason(state, reason));
	}
	check_stdout(ctl);
}

static void line_prepared(struct ctl *ctl, const json_t *result)
{
	char path[4096], use[16], format[16], tokens[FORMAT_BYTES], size[FORMAT_BYTES];
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "files"), i, row) {
		fprintf(ctl->out.file, "%s: %s tokens, %s, %s, for %s\n",
			format_string(row, "path", "?", path, sizeof(path)),
			format_count(format_int(row, "tokens", 0), tokens),
			format_size(format_int(row, "bytes", 0), size),
			format_string(row, "format", "?", format, sizeof(format)),
			format_string(row, "use", "train", use, sizeof(use)));
	}
	fprintf(ctl->out.file, "tokenizer %s: vocab_size %lld, largest id found %lld\n",
		format_string(result, "tokenizer", "?", path, sizeof(path)),
		(long long)format_int(result, "vocab_size", 0),
		(long long)format_int(result, "largest_token", -1));
	check_stdout(ctl);
}

static void line_shutdown(struct ctl *ctl, const json_t *reply)
{
	const long long running = format_int(reply, "running", 0);

	fputs("gpt2d is shutting down\n", ctl->out.file);
	if (running > 0 && json_is_true(json_object_get(reply, "stopping")))
		fprintf(ctl->out.file, "run %lld is being stopped; its end: gpt2ctl wait %lld\n",
			running, running);
	else if (running > 0)
		fprintf(ctl->out.file,
			"run %lld is finished first; its end: gpt2ctl wait %lld; without it: "
			"gpt2ctl shutdown --now\n",
			running, running);
	check_stdout(ctl);
}

static void line_version(struct ctl *ctl, const json_t *versions)
{
	const json_t *side, *libraries, *library;
	char version[64], build[128];
	const char *name, *key;

	json_object_foreach((json_t *)versions, name, side) {
		if (!json_is_object(side))
			continue;
		fprintf(ctl->out.file, "%s %s (build %s), protocol %lld\n", name,
			format_string(side, "version", "?", version, sizeof(version)),
			format_string(side, "build", "?", build, sizeof(build)),
			(long long)format_int(side, "protocol", 0));
		libraries = json_object_get(side, "libraries");
		json_object_foreach((json_t *)libraries, key, library)
			fprintf(ctl->out.file, "  %s %s\n", key,
				format_string(libraries, key, "?", version, sizeof(version)));
	}
	check_stdout(ctl);
}

static void line_error(struct ctl *ctl, const struct ctl_error *error)
{
	print_error(ctl, error->message);
}

/* Meant for programs: as it is. */
static void text_metrics(struct ctl *ctl, const json_t *reply)
{
	const char *text = json_string_value(json_object_get(reply, "text"));

	fputs(text ? text : "", ctl->out.file);
}

static void print_artifacts(struct ctl *ctl, const json_t *result)
{
	text_artifacts(ctl, result);
	text_artifacts_trouble(ctl, result);
}

/* A text function whose last act is the check of stdout. */
#define CHECKED(name, call)                                                                        \
	static void name(struct ctl *ctl, const json_t *object)                                    \
	{                                                                                          \
		call(ctl, object);                                                                 \
		check_stdout(ctl);                                                                 \
	}
CHECKED(checked_submitted, text_submitted)
CHECKED(checked_list, text_list)
CHECKED(checked_show, text_show)
CHECKED(checked_artifacts, print_artifacts)
CHECKED(checked_logs, text_logs)
CHECKED(checked_log_line, text_log_line)
CHECKED(checked_pruned, text_pruned)
CHECKED(checked_kept, text_kept)
CHECKED(checked_metrics, text_metrics)
CHECKED(checked_compare, text_compare)
CHECKED(checked_cancelled, text_cancelled)
CHECKED(checked_priority, text_priority)
#undef CHECKED

static void checked_top(struct ctl *ctl, const json_t *object, const struct view *view)
{
	text_top(&ctl->out, view, TEXT_ROWS_ALL);
	check_stdout(ctl);
}

static void checked_gate(struct ctl *ctl, const char *method, const json_t *reply)
{
	text_gate(ctl, method, reply);
	check_stdout(ctl);
}

static void checked_status(struct ctl *ctl, const json_t *reply, size_t queue_rows)
{
	text_status(ctl, reply, queue_rows);
	check_stdout(ctl);
}

static void checked_dry_run(struct ctl *ctl, const json_t *reply, bool verbose)
{
	text_dry_run(ctl, reply, verbose);
	check_stdout(ctl);
}

static void checked_event(
	struct ctl *ctl, struct progress *progress, const char *event, const json_t *params)
{
	text_event(ctl, progress, event, params);
	check_stdout(ctl);
}

const struct output output_text = {
	.submitted = checked_submitted,
	.dry_run = checked_dry_run,
	.status = checked_status,
	.top = checked_top,
	.list = checked_list,
	.show = checked_show,
	.artifacts = checked_artifacts,
	.logs = checked_logs,
	.log_line = checked_log_line,
	.pruned = checked_pruned,
	.kept = checked_kept,
	.metrics = checked_metrics,
	.compare = checked_compare,
	.cancelled = checked_cancelled,
	.gate = checked_gate,
	.priority = checked_priority,
	.waited = line_waited,
	.prepared = line_prepared,
	.shutdown = line_shutdown,
	.version = line_version,
	.event = checked_event,
	.error = line_error,
	.spec_errors = print_spec_errors,
};

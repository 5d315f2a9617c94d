#include "ctl/print/output.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "proto/protocol.h"

/* ---- stdout may be full or closed ---- */

/* Whether it is a pipe whose reader has closed it. */
static bool reader_gone(FILE *out)
{
	struct pollfd p = {.fd = fileno(out)};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* Whether an earlier write may have left this error: other calls return other codes. */
static bool is_write_error(int error)
{
	static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EBADF, EPIPE};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i] == error)
			return true;
	return false;
}

bool output_flush(struct output *o)
{
	const int before = errno;
	FILE *out = o->out.file;
	int error;

	if (o->failed)
		return false;
	errno = 0;
	if (fflush(out) == 0 && !ferror(out))
		return true;
	if (errno)
		error = errno;
	else if (reader_gone(out))
		error = EPIPE;
	else
		error = is_write_error(before) ? before : EIO;
	o->failed = true;
	o->unread = error == EPIPE; /* head has read enough */
	if (!o->unread)
		fprintf(o->err.file, "gpt2ctl: stdout: %s\n", strerror(error));
	return false;
}

void output_confirm(struct output *o, const char *verb)
{
	if (!output_flush(o))
		fprintf(o->err.file, "gpt2ctl: %s: the change was made\n", verb);
}

int output_finish(struct output *o, int exit)
{
	output_flush(o);
	if (o->unread)
		return CTL_UNREAD;
	return o->failed ? CTL_TRANSPORT : exit;
}

/* ---- printing ---- */

bool output_print(struct output *o, const char *kind, const json_t *object,
	void (*text)(struct output *o, const json_t *object))
{
	json_t *line;

	if (o->failed)
		return false;
	if (o->json) {
		line = json_pack("{s:i, s:s}", "schema", OUTPUT_SCHEMA, "kind", kind);
		json_object_update_missing(line, (json_t *)object);
		json_dumpf(line, o->out.file, JSON_COMPACT);
		fputc('\n', o->out.file);
		json_decref(line);
	} else if (text) {
		text(o, object);
	}
	return output_flush(o);
}

void output_error(struct output *o, const char *message)
{
	char clean[2048];

	if (o->unread)
		return; /* the reader has read enough */
	term_clean_lines(message, clean, sizeof(clean));
	fprintf(o->err.file, "%sgpt2ctl:%s %s\n", term_colour(&o->err, TERM_RED),
		term_colour(&o->err, TERM_PLAIN), clean);
}

void output_failure(struct output *o, const char *message, json_t *error)
{
	json_t *object = json_pack("{s:o}", "error", error);

	output_error(o, message);
	output_print(o, "error", object, NULL);
	json_decref(object);
}

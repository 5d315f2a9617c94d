#include "daemon/runs/run_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/control/reply.h"
#include "daemon/control/follow.h"
#include "daemon/runs/queue.h"
#include "daemon/store/record.h"
#include "daemon/control/role.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/text.h"

enum { LINES_STANDARD = 1000 };

struct run_log {
	struct store *store;
	struct queue *queue;
	struct follow *follow;
	int64_t pending; /* lines that are with the store */
};

struct run_log *run_log_create(struct store *store, struct queue *queue, struct follow *follow)
{
	struct run_log *log = memory_zeroed(1, sizeof(*log));

	*log = (struct run_log){store, queue, follow, 0};
	return log;
}

void run_log_destroy(struct run_log *log)
{
	free(log);
}

/* ---- write ---- */

static void on_written(void *arg, int rc)
{
	struct run_log *log = arg;

	log->pending--;
	if (rc < 0)
		log_write(LOG_ERROR, "log lines of runs could not be written: %s",
			store_error_text(rc));
}

void run_log_write(struct run_log *log, struct run *run, int rank, enum log_level level,
	const char *format, ...)
{
	struct record_log_line line = {.run = run->id,
		.at_ns = clock_utc_ns(),
		.rank = rank,
		.level = level,
		.dropped = run->log_dropped};
	va_list args;

	if (log->pending >= RUN_LOG_PENDING) {
		run->log_dropped++;
		return;
	}
	run->log_dropped = 0;
	va_start(args, format);
	vsnprintf(line.message, sizeof(line.message), format, args);
	va_end(args);
	text_printable(line.message, ' ');
	follow_event(log->follow, run->id, EVENT_LOG,
		json_pack("{so ss ss}", "rank", rank < 0 ? json_null() : json_integer(rank),
			"level", log_level_name(level), "message", line.message));
	log->pending++;
	record_log_add(log->store, &line, on_written, log);
}

void run_log_take(struct run_log *log, struct run *run, int rank, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "level"));
	const char *text = json_string_value(json_object_get(params, "message"));
	const enum log_level level = log_level_of(name ? name : "");

	if (text == NULL)
		return;
	log_write_engine(level, "rank %d: %s", rank, text);
	if (run != NULL && level > LOG_DEBUG)
		run_log_write(log, run, rank, level, "%s", text);
}

/* ---- logs ---- */

struct question {
	struct run_log *log;
	struct reply *reply;
	int64_t id;
};

static void on_lines(void *arg, int rc, json_t *result)
{
	struct question *q = arg;

	if (rc < 0) {
		reply_unread(q->reply, q->log->store, q->id, rc);
	} else {
		json_object_set_new(result, "open",
			json_boolean(
				queue_find(q->log->queue, q->id) != NULL || q->log->pending > 0));
		reply_result(q->reply, result);
	}
	free(q);
}

/* gpt2d's own messages; the newest are in memory. */
static json_t *own_lines(int64_t after, int64_t limit, enum log_level level)
{
	json_t *lines = json_array();
	struct log_line line;
	int64_t n = after;

	while ((int64_t)json_array_size(lines) < limit && log_recent(n + 1, &line)) {
		n = line.n;
		if (line.level < level)
			continue;
		json_array_append_new(lines,
			json_pack("{sI so sn ss ss}", "n", (json_int_t)line.n, "at",
				clock_json(line.at_ns), "rank", "level", log_level_name(line.level),
				"message", line.message));
	}
	return json_pack("{sn sn sn so sI sI sb sb}", "id", "name", "state", "lines", lines,
		"dropped", (json_int_t)log_forgotten(), "next", (json_int_t)n, "more",
		log_recent(n + 1, &line), "open", 1);
}

/* False: it has its reply. */
static bool take_level(struct reply *reply, json_t *params, enum log_level *level)
{
	const char *name = json_string_value(json_object_get(params, "level"));

	*level = name ? log_level_of(name) : LOG_DEBUG;
	if (name == NULL || strcmp(log_level_name(*level), name) == 0)
		return true;
	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
		"level: \"%.32s\": unknown (expected debug, info, warning or error)", name);
	return false;
}

void run_log_request(struct run_log *log, struct reply *reply, json_t *params)
{
	int64_t after = rpc_integer(params, "after", 0);
	int64_t limit = rpc_integer(params, "limit", LINES_STANDARD);
	enum log_level level;
	struct question *q;

	if (!take_level(reply, params, &level))
		return;
	if (limit < 1 || limit > LINES_STANDARD || after < 0) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
			"limit: 1 to %d is allowed; after: 0 and above", LINES_STANDARD);
		return;
	}
	if (json_object_get(params, "id") == NULL) {
		if (role_may_change(reply_peer(reply), geteuid()))
			reply_result(reply, own_lines(after, limit, level));
		else
			reply_error(reply, PROTOCOL_NOT_ALLOWED, NULL,
				"only gpt2d's user and admins may read its own messages");
		return;
	}
	q = memory_zeroed(1, sizeof(*q));
	*q = (struct question){log, reply, rpc_integer(params, "id", 0)};
	record_log_read(log->store, q->id, after, limit, level, on_lines, q);
}

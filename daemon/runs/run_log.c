#include "daemon/runs/run_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/clock.h"
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

/* Lines that are with the store. */
struct batch {
	TAILQ_ENTRY(batch) link;
	struct run_log *log;
	struct record_log_lines lines;
};

struct run_log {
	struct store *store;
	struct queue *queue;
	struct follow *follow;
	struct record_log_lines waiting;
	int64_t n_waiting;
	TAILQ_HEAD(, batch) batches;
};

static void free_lines(struct record_log_lines *lines)
{
	struct record_log_line *line;

	while ((line = TAILQ_FIRST(lines)) != NULL) {
		TAILQ_REMOVE(lines, line, link);
		free(line);
	}
}

struct run_log *run_log_create(struct store *store, struct queue *queue, struct follow *follow)
{
	struct run_log *log = memory_zeroed(1, sizeof(*log));

	log->store = store;
	log->queue = queue;
	log->follow = follow;
	TAILQ_INIT(&log->waiting);
	TAILQ_INIT(&log->batches);
	return log;
}

static void free_batch(struct batch *b)
{
	TAILQ_REMOVE(&b->log->batches, b, link);
	free_lines(&b->lines);
	free(b);
}

void run_log_destroy(struct run_log *log)
{
	struct batch *b;

	if (log == NULL)
		return;
	free_lines(&log->waiting);
	while ((b = TAILQ_FIRST(&log->batches)) != NULL)
		free_batch(b);
	free(log);
}

/* ---- write ---- */

static void on_written(void *arg, int rc)
{
	struct batch *b = arg;
	struct run_log *log = b->log;

	if (rc < 0)
		log_write(LOG_ERROR, "log lines of runs could not be written: %s",
			store_error_text(rc));
	free_batch(b);
	if (TAILQ_EMPTY(&log->batches))
		run_log_flush(log);
}

void run_log_flush(struct run_log *log)
{
	struct batch *b;

	if (TAILQ_EMPTY(&log->waiting))
		return;
	b = memory_zeroed(1, sizeof(*b));
	b->log = log;
	TAILQ_INIT(&b->lines);
	TAILQ_CONCAT(&b->lines, &log->waiting, link);
	TAILQ_INSERT_TAIL(&log->batches, b, link);
	log->n_waiting = 0;
	record_log_add(log->store, &b->lines, on_written, b);
}

static struct record_log_line *last_of(const struct record_log_lines *lines, int64_t run)
{
	struct record_log_line *line;

	TAILQ_FOREACH_REVERSE(line, lines, record_log_lines, link)
	if (line->run == run)
		return line;
	return NULL;
}

/* One line of printable text. */
static void clean(char *text)
{
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	text_clean(text);
}

void run_log_write(struct run_log *log, struct run *run, int rank, enum log_level level,
	const char *format, ...)
{
	struct record_log_line *line, *last;
	va_list args;

	last = log->n_waiting >= RUN_LOG_WAITING ? last_of(&log->waiting, run->id) : NULL;
	if (last != NULL) {
		last->dropped++;
		return;
	}
	line = memory_zeroed(1, sizeof(*line));
	*line = (struct record_log_line){
		.run = run->id, .at_ns = clock_utc_ns(), .rank = rank, .level = level};
	va_start(args, format);
	vsnprintf(line->message, sizeof(line->message), format, args);
	va_end(args);
	clean(line->message);
	TAILQ_INSERT_TAIL(&log->waiting, line, link);
	log->n_waiting++;
	follow_event(log->follow, run->id, EVENT_LOG,
		json_pack("{so ss ss}", "rank", rank < 0 ? json_null() : json_integer(rank),
			"level", log_level_name(level), "message", line->message));
	if (TAILQ_EMPTY(&log->batches))
		run_log_flush(log);
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

/* Whether more lines of the run may follow. */
static bool is_open(const struct run_log *log, int64_t id)
{
	const struct batch *b;

	TAILQ_FOREACH(b, &log->batches, link)
		if (last_of(&b->lines, id) != NULL)
			return true;
	return queue_find(log->queue, id) != NULL || last_of(&log->waiting, id) != NULL;
}

static void on_lines(void *arg, int rc, json_t *result)
{
	struct question *q = arg;

	if (rc < 0) {
		reply_unread(q->reply, q->log->store, q->id, rc);
	} else {
		json_object_set_new(result, "open", json_boolean(is_open(q->log, q->id)));
		reply_result(q->reply, result);
	}
	free(q);
}

/* gpt2d's own messages, of which the newest are in memory. */
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

/* False: it has been answered. */
static bool take_level(struct reply *reply, json_t *params, enum log_level *level)
{
	const char *name = json_string_value(json_object_get(params, "level"));

	*level = name ? log_level_of(name) : LOG_DEBUG;
	if (name == NULL || strcmp(log_level_name(*level), name) == 0)
		return true;
	reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL,
		"level: \"%.32s\" is none (debug, info, warning, error)", name);
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
				"what gpt2d itself says is for its owner and administrators");
		return;
	}
	q = memory_zeroed(1, sizeof(*q));
	*q = (struct question){log, reply, rpc_integer(params, "id", 0)};
	record_log_read(log->store, q->id, after, limit, level, on_lines, q);
}

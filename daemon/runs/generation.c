#include "daemon/runs/generation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "daemon/config/log.h"
#include "daemon/control/reply.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/runs/hold.h"
#include "proto/host/memory.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/text.h"

enum generation_state {
	GENERATION_NONE,
	GENERATION_LOOKING,
	GENERATION_WAITING,
	GENERATION_RUNNING
};

struct generation {
	struct generation_options o;
	enum generation_state state;
	struct reply *reply; /* NULL while running: the client already has an error */
	json_t *params;      /* of generate.start */
	int64_t number;      /* number of generations so far, which the reports contain */
	int64_t run;
	int64_t heard_ns; /* running: of the last report */
	bool cancelled;
};

struct generation *generation_create(const struct generation_options *options)
{
	struct generation *g = memory_zeroed(1, sizeof(*g));

	g->o = *options;
	return g;
}

void generation_destroy(struct generation *g)
{
	if (g == NULL)
		return;
	reply_drop(g->reply);
	json_decref(g->params);
	free(g);
}

static void end(struct generation *g)
{
	json_decref(g->params);
	g->params = NULL;
	g->reply = NULL;
	g->state = GENERATION_NONE;
	g->o.changed(g->o.arg);
}

/* Refuses it and frees it. */
static void refuse(struct generation *g, int code, const char *message)
{
	if (g->reply)
		reply_error(g->reply, code, NULL, "%s", message);
	end(g);
}

static void busy_text(int64_t running, char out[160])
{
	snprintf(out, 160,
		"run %lld is with the engines: generate works between runs\n"
		"retry after it: gpt2ctl wait %lld",
		(long long)running, (long long)running);
}

/* ---- the request ---- */

/* Why a parameter is invalid; NULL: all are valid. */
static const char *find_fault(const json_t *params)
{
	const json_t *prompt = json_object_get(params, "prompt"), *token;
	const int64_t tokens = rpc_integer(params, "tokens", 1);
	const double temperature = json_number_value(json_object_get(params, "temperature"));
	size_t i;

	if (json_array_size(prompt) < 1 || json_array_size(prompt) > PROTOCOL_PROMPT_MAX)
		return "prompt: 1 to 65536 tokens are allowed";
	json_array_foreach(prompt, i, token) {
		if (!json_is_integer(token) || json_integer_value(token) < 0 ||
			json_integer_value(token) > UINT16_MAX)
			return "prompt: an array of tokens, 0 to 65535, is expected";
	}
	if (tokens < 1 || tokens > PROTOCOL_PROMPT_MAX)
		return "tokens: 1 to 65536 is allowed";
	if (!(temperature >= 0 && temperature <= 1e6))
		return "temperature: 0 to 1000000 is allowed";
	if (rpc_integer(params, "top_k", 0) < 0)
		return "top_k: 0 and above is allowed";
	return NULL;
}

static void on_found(void *arg, const struct checkpoints_last *c)
{
	struct generation *g = arg;

	if (c == NULL) {
		g->reply = NULL; /* it has its error */
		end(g);
		return;
	}
	json_object_set_new(g->params, "number", json_integer((json_int_t)g->number));
	json_object_set_new(g->params, "dir", json_string(c->dir));
	g->state = GENERATION_WAITING;
	g->o.changed(g->o.arg);
}

void generation_request(struct generation *g, struct reply *reply, json_t *params, int64_t running)
{
	const char *fault = find_fault(params);
	char text[160];

	if (fault != NULL) {
		reply_error(reply, PROTOCOL_INVALID_PARAMS, NULL, "%s", fault);
	} else if (running > 0) {
		busy_text(running, text);
		reply_error(reply, PROTOCOL_BUSY, NULL, "%s", text);
	} else if (g->state != GENERATION_NONE) {
		reply_error(reply, PROTOCOL_BUSY, NULL,
			"another generation is in progress, of run %lld; retry later",
			(long long)g->run);
	} else {
		g->state = GENERATION_LOOKING;
		g->reply = reply;
		g->params = json_copy(params);
		g->run = rpc_integer(params, "id", 0);
		g->number++;
		g->cancelled = false;
		json_object_del(g->params, "id");
		json_object_set_new(g->params, "run", json_integer((json_int_t)g->run));
		checkpoints_find_last(&g->o.checkpoints, reply, g->run, on_found, g);
	}
}

/* ---- with the engines ---- */

bool generation_waits(const struct generation *g)
{
	return g->state == GENERATION_WAITING;
}

bool generation_runs(const struct generation *g)
{
	return g->state == GENERATION_RUNNING;
}

bool generation_start(struct generation *g, int64_t running)
{
	char text[160];

	if (g->state != GENERATION_WAITING)
		return g->state == GENERATION_RUNNING;
	if (running > 0) {
		busy_text(running, text);
		refuse(g, PROTOCOL_BUSY, text);
		return false;
	}
	if (hold_is_set(g->o.holds, HOLD_RELEASED)) {
		refuse(g, PROTOCOL_BUSY, "the engines are released\nstart them: gpt2ctl warm");
		return false;
	}
	if (!engine_pool_ready(g->o.pool))
		return true;
	g->state = GENERATION_RUNNING;
	g->heard_ns = clock_mono_ns();
	engine_pool_send(g->o.pool, 1, GENERATE_START, g->params);
	return true;
}

static void cancel(struct generation *g)
{
	/* segments count from 1 */
	json_t *params = json_pack("{sI si}", "run", (json_int_t)g->run, "segment", 0);

	if (!g->cancelled)
		engine_pool_send(g->o.pool, 1, SEGMENT_CANCEL, params);
	g->cancelled = true;
	json_decref(params);
}

static void on_done(struct generation *g, json_t *params)
{
	json_t *result = json_copy(params);

	log_write(LOG_INFO, "run %lld: %zu tokens were generated", (long long)g->run,
		json_array_size(json_object_get(params, "tokens")));
	json_object_del(result, "number");
	json_object_del(result, "run");
	json_object_set_new(result, "id", json_integer((json_int_t)g->run));
	if (g->reply)
		reply_result(g->reply, result);
	else
		json_decref(result);
	end(g);
}

static void on_failed(struct generation *g, json_t *params)
{
	const char *message = json_string_value(json_object_get(params, "message"));
	const bool refused = json_is_true(json_object_get(params, "refused"));
	char text[1100];

	snprintf(text, sizeof(text), "run %lld: %s", (long long)g->run,
		message ? message : "the engine gave no reason");
	text_clean(text);
	refuse(g, refused ? PROTOCOL_INVALID_PARAMS : PROTOCOL_INTERNAL, text);
}

bool generation_message(struct generation *g, const char *method, json_t *params)
{
	const bool done = strcmp(method, GENERATE_DONE) == 0;
	const bool failed = strcmp(method, GENERATE_FAILED) == 0;

	if (!done && !failed && strcmp(method, GENERATE_PROGRESS) != 0)
		return false;
	if (g->state != GENERATION_RUNNING || rpc_integer(params, "number", 0) != g->number)
		return true;
	g->heard_ns = clock_mono_ns();
	if (done)
		on_done(g, params);
	else if (failed)
		on_failed(g, params);
	return true;
}

void generation_lost(struct generation *g, const char *reason)
{
	if (g->state == GENERATION_WAITING || g->state == GENERATION_RUNNING)
		refuse(g, PROTOCOL_INTERNAL, reason);
}

void generation_watch(struct generation *g)
{
	const int64_t patience_ns = *g->o.progress_timeout_s * CLOCK_S_NS;

	if (g->state == GENERATION_WAITING && !reply_wanted(g->reply))
		refuse(g, PROTOCOL_BUSY, "no client waits for it");
	if (g->state != GENERATION_RUNNING)
		return;
	if (g->reply && !reply_wanted(g->reply))
		cancel(g);
	if (clock_mono_ns() - g->heard_ns > patience_ns)
		engine_pool_restart(g->o.pool, "engine_hung: no progress of a generation");
}

void generation_stop(struct generation *g)
{
	struct reply *reply = g->reply;

	if (g->state == GENERATION_RUNNING)
		cancel(g);
	if (g->state == GENERATION_WAITING) {
		refuse(g, PROTOCOL_BUSY, "gpt2d is stopping");
	} else if (g->state == GENERATION_RUNNING && reply) {
		g->reply = NULL;
		reply_error(reply, PROTOCOL_BUSY, NULL, "gpt2d is stopping");
	}
}

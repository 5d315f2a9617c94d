/* A link whose owner destroys it from within a call of its own is not read any more. */
#include <event2/event.h>

#include "daemon/engines/engine_link.h"
#include "tests/unit/test.h"

enum { PIECE = 8 << 20, PIECES = 16 }; /* more than a link keeps for an engine that reads nothing */

struct owner {
	struct event_base *base;
	struct engine_link *link;
	bool on_message; /* destroy it then */
	int messages, broken;
	char why[256];
};

static void destroy(struct owner *o)
{
	engine_link_destroy(o->link);
	o->link = NULL;
	event_base_loopbreak(o->base);
}

static void on_message(struct engine_link *link, const char *method, json_t *params, void *arg)
{
	struct owner *o = arg;

	o->messages++;
	if (o->on_message)
		destroy(o);
}

static void on_broken(struct engine_link *link, const char *why, void *arg)
{
	struct owner *o = arg;

	o->broken++;
	snprintf(o->why, sizeof(o->why), "%s", why ? why : "closed");
	destroy(o);
}

static void begin(struct owner *o, const char *script)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	const struct engine_link_options options = {
		.program = "/bin/sh",
		.argv = argv,
		.what = "rank 0",
		.message = on_message,
		.broken = on_broken,
		.arg = o,
	};
	struct engine_link_options with = options;

	o->base = event_base_new();
	assert_non_null(o->base);
	with.base = o->base;
	assert_int_equal(engine_link_create(&with, &o->link), 0);
}

static void finish(struct owner *o)
{
	assert_null(o->link);
	event_base_free(o->base);
}

/* An engine that reads nothing is reported as broken, from the loop and not from within. */
static void test_what_was_not_sent(void **state)
{
	struct owner o = {0};
	char *piece = malloc(PIECE + 1);

	assert_non_null(piece);
	memset(piece, 'x', PIECE);
	piece[PIECE] = '\0';
	begin(&o, "exec sleep 1000");
	for (int i = 0; i < PIECES; i++)
		engine_link_send(o.link, "segment.run", json_pack("{s:s}", "text", piece));
	free(piece);
	assert_int_equal(o.broken, 0);
	event_base_dispatch(o.base);
	assert_int_equal(o.broken, 1);
	assert_non_null(strstr(o.why, "does not read what gpt2d sends"));
	finish(&o);
}

static void test_an_invalid_message(void **state)
{
	struct owner o = {0};

	begin(&o, "echo nonsense >&3; exec sleep 1000");
	event_base_dispatch(o.base);
	assert_int_equal(o.broken, 1);
	assert_non_null(strstr(o.why, "an invalid message"));
	finish(&o);
}

static void test_the_end(void **state)
{
	struct owner o = {0};

	begin(&o, "exit 3");
	event_base_dispatch(o.base);
	assert_int_equal(o.broken, 1);
	assert_string_equal(o.why, "closed");
	finish(&o);
}

static void test_a_message(void **state)
{
	struct owner o = {.on_message = true};

	begin(&o,
		"m='{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{}}'; "
		"printf '%s\\n%s\\n' \"$m\" \"$m\" >&3; exec sleep 1000");
	event_base_dispatch(o.base);
	assert_int_equal(o.messages, 1);
	assert_int_equal(o.broken, 0);
	finish(&o);
}

TEST_MAIN(cmocka_unit_test(test_what_was_not_sent), cmocka_unit_test(test_an_invalid_message),
	cmocka_unit_test(test_the_end), cmocka_unit_test(test_a_message))

/*
 * store_fixture.h: a store in a directory of its own, a spec of two arms, and waiting for what the
 * store answers.
 */
#ifndef GPT2D_TESTS_UNIT_DAEMON_STORE_FIXTURE_H
#define GPT2D_TESTS_UNIT_DAEMON_STORE_FIXTURE_H

#include <jansson.h>
#include <stdint.h>
#include <sys/resource.h>

#include "daemon/store/record.h"
#include "daemon/store/store.h"
#include "proto/spec/spec.h"

struct store_fixture {
	char folder[64], path[96];
	struct spec *spec;
	char *canonical;
};

/* cmocka's set-up and tear-down; *state is a struct store_fixture. */
int store_fixture_set_up(void **state);
int store_fixture_tear_down(void **state);

/* No file of this process may grow beyond that; RLIM_INFINITY: as far as was allowed at first. */
void store_fixture_limit(rlim_t bytes);

/* Opened, not started. */
struct store *store_fixture_open(const struct store_fixture *f);

/* The arguments of a callback; called counts. */
struct store_outcome {
	int called, rc;
	json_t *result;
};

/* Callbacks of jobs, transitions and questions; arg is a struct store_outcome. */
void store_fixture_done(void *arg, int rc);
void store_fixture_moved(void *arg, struct run *run, enum run_state state, int rc);
void store_fixture_answered(void *arg, int rc, json_t *result);

/* At most 30 s for one turn of the store. */
void store_fixture_deliver(struct store *s);
void store_fixture_wait(struct store *s, const struct store_outcome *o);

/* Queued, of the fixture's spec; its id once it is stored. */
struct run store_fixture_run(const struct store_fixture *f);
int64_t store_fixture_submit(struct store *s, const struct store_fixture *f);

/* record_show's answer, the caller's. */
json_t *store_fixture_show(struct store *s, int64_t id, int64_t after, int64_t limit);

#define STORE_FIXTURE_TEST(test)                                                                   \
	cmocka_unit_test_setup_teardown(test, store_fixture_set_up, store_fixture_tear_down)

#endif

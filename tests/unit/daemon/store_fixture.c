#include <poll.h>
#include <signal.h>

#include "tests/unit/daemon/store_fixture.h"
#include "tests/unit/test.h"

static const char text[] =
	"{\"name\": \"x\", \"model\": \"nano\", \"data\": {\"kind\": \"synthetic\"},"
	" \"seq_len\": 8,"
	" \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 1,"
	" \"work\": {\"optimizer_steps\": 2, \"warmup_steps\": 0},"
	" \"arms\": {\"a\": {}, \"b\": {\"seed\": 2}}, \"design\": {\"repetitions\": 2}}";

void store_fixture_limit(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

int store_fixture_set_up(void **state)
{
	struct store_fixture *f = calloc(1, sizeof(*f));
	struct spec_options options = {.world = 1};
	struct spec_errors *errors = calloc(1, sizeof(*errors));

	/* a test that failed may have left the limit of test_disk_full */
	store_fixture_limit(RLIM_INFINITY);
	signal(SIGXFSZ, SIG_IGN);
	strcpy(f->folder, "/tmp/test_store.XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof(f->path), "%s/db", f->folder);
	if (spec_parse(text, strlen(text), &options, &f->spec, errors) != 0)
		fail_msg("%s: %s", errors->error[0].key, errors->error[0].message);
	f->canonical = spec_canonical(f->spec);
	free(errors);
	*state = f;
	return 0;
}

int store_fixture_tear_down(void **state)
{
	struct store_fixture *f = *state;
	static const char *const names[] = {"db", "db-wal", "db-shm"};
	char path[128];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", f->folder, names[i]);
		unlink(path);
	}
	rmdir(f->folder);
	free(f->canonical);
	spec_free(f->spec);
	free(f);
	return 0;
}

struct store *store_fixture_open(const struct store_fixture *f)
{
	struct store *s = NULL;
	char error[256] = "";

	if (store_open(f->path, &s, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return s;
}

void store_fixture_deliver(struct store *s)
{
	struct pollfd p = {.fd = store_fd(s), .events = POLLIN};

	assert_int_equal(poll(&p, 1, 30000), 1);
	store_deliver(s);
}

void store_fixture_done(void *arg, int rc)
{
	struct store_outcome *o = arg;

	o->called++;
	o->rc = rc;
}

void store_fixture_moved(void *arg, struct run *run, enum run_state state, int rc)
{
	store_fixture_done(arg, rc);
}

void store_fixture_answered(void *arg, int rc, json_t *result)
{
	store_fixture_done(arg, rc);
	((struct store_outcome *)arg)->result = result;
}

void store_fixture_wait(struct store *s, const struct store_outcome *o)
{
	while (!o->called)
		store_fixture_deliver(s);
}

struct run store_fixture_run(const struct store_fixture *f)
{
	struct run run = {.state = RUN_QUEUED, .attempt = 1, .gpus = 1, .submitted_ns = 1};

	strcpy(run.name, f->spec->name);
	strcpy(run.spec_sha256, "abc");
	run.segments = (int64_t)spec_segments(f->spec);
	return run;
}

int64_t store_fixture_submit(struct store *s, const struct store_fixture *f)
{
	struct run run = store_fixture_run(f);
	struct store_outcome o = {0};

	record_submit(s, &run, f->spec, f->canonical, "[]", store_fixture_done, &o);
	store_fixture_wait(s, &o);
	assert_int_equal(o.rc, 0);
	return run.id;
}

json_t *store_fixture_show(struct store *s, int64_t id, int64_t after, int64_t limit)
{
	struct store_outcome o = {0};

	record_show(s, "/state", id, after, limit, store_fixture_answered, &o);
	store_fixture_wait(s, &o);
	assert_int_equal(o.rc, 0);
	return o.result;
}

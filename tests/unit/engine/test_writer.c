/*
 * The writer with a disk that does not answer: nothing is lost, the caller waits before it requests
 * more work, and the log says why.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "engine/writer.h"
#include "proto/protocol.h"
#include "tests/unit/test.h"

/* ---- in place of the disk and of gpt2d ---- */

static atomic_bool disk_stands;
static atomic_int done, warnings, waited, written_last;

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

int metrics_write(const struct metrics_segment *m, struct metrics_files *files, char *error,
	size_t error_bytes)
{
	while (atomic_load(&disk_stands))
		nap();
	atomic_store(&written_last, (int)m->segment);
	files->n = 0;
	return 0;
}

json_t *metrics_summary(const struct metrics_segment *m, const struct metrics_files *files)
{
	return json_object();
}

void link_send(struct link *l, const char *method, json_t *params)
{
	if (strcmp(method, SEGMENT_DONE) == 0)
		atomic_fetch_add(&done, 1);
	json_decref(params);
}

void link_log(struct link *l, const char *level, const char *format, ...)
{
	atomic_fetch_add(&warnings, strcmp(level, "warning") == 0);
}

void segment_report_failure(const struct segment *s, struct link *link)
{
	abort();
}

void segment_destroy(struct segment *s)
{
	json_decref(s->params);
	free(s->spec);
	free(s);
}

/* ---- tests ---- */

static struct segment *trained(int number)
{
	struct segment *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->spec = calloc(1, sizeof(*s->spec));
	assert_non_null(s->spec);
	s->params = json_object();
	s->segment = number;
	s->measure.done = 1;
	s->training.plan.world = 1;
	s->training.shape.model = &s->config.model;
	return s;
}

static void *wait_in_thread(void *writer)
{
	writer_wait(writer);
	atomic_store(&waited, 1);
	return NULL;
}

static void test_disk_stands_still(void **state)
{
	struct writer_options options = {0};
	struct writer *w;
	pthread_t thread;
	int n = 0;

	assert_int_equal(writer_create(&options, &w), 0);
	atomic_store(&disk_stands, true);
	for (; n < 9; n++)
		writer_add(w, trained(n));
	assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, w), 0);
	while (atomic_load(&warnings) == 0)
		nap();
	assert_int_equal(atomic_load(&waited), 0);
	assert_int_equal(atomic_load(&done), 0);
	atomic_store(&disk_stands, false);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&warnings), 1);
	writer_add(w, trained(n));
	writer_destroy(w);
	assert_int_equal(atomic_load(&done), 10);
	assert_int_equal(atomic_load(&written_last), n);
}

static void test_disk_keeps_up(void **state)
{
	struct writer_options options = {0};
	struct writer *w;

	atomic_store(&done, 0);
	atomic_store(&warnings, 0);
	assert_int_equal(writer_create(&options, &w), 0);
	for (int n = 0; n < 1000; n++) {
		writer_wait(w);
		writer_add(w, trained(n));
	}
	writer_destroy(w);
	assert_int_equal(atomic_load(&done), 1000);
	assert_int_equal(atomic_load(&warnings), 0);
}

TEST_MAIN(cmocka_unit_test(test_disk_stands_still), cmocka_unit_test(test_disk_keeps_up))

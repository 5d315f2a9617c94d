/*
 * metrics_fixture.h: a segment of two ranks that was trained, in a directory of its own.
 */
#ifndef GPT2D_TESTS_UNIT_ENGINE_METRICS_FIXTURE_H
#define GPT2D_TESTS_UNIT_ENGINE_METRICS_FIXTURE_H

#include <jansson.h>

#include "engine/report/measure.h"
#include "engine/report/metrics.h"
#include "kernels/kernels.h"
#include "proto/spec/spec.h"

enum { METRICS_STEPS = 30, METRICS_WARMUP = 2, METRICS_WORLD = 2 };

struct metrics_fixture {
	char dir[64];
	struct spec_config config;
	struct measure measure;
	struct metrics_log log;
	struct metrics_host_rank ranks[METRICS_WORLD];
	struct k_device_info device;
	struct metrics_segment segment;
};

extern const char metrics_fixture_spec_text[];

int metrics_fixture_setup(void **state);
int metrics_fixture_teardown(void **state);

/* metrics_begin and metrics_write, which succeed. */
void metrics_fixture_write_all(struct metrics_fixture *f, struct metrics_files *files);

/* The file's bytes, to be freed; NULL when there is none. */
char *metrics_fixture_read_file(const struct metrics_fixture *f, const char *name);
/* Parsed strictly; a new reference. */
json_t *metrics_fixture_read_json(const struct metrics_fixture *f, const char *name);

/* The value at "a.b.0.c"; borrowed, NULL when there is none. */
json_t *metrics_fixture_at(json_t *value, const char *path);
/* It is this JSON, with ' for "; where path ends in .# it has so many members. */
void metrics_fixture_has(json_t *value, const char *path, const char *text);

#endif

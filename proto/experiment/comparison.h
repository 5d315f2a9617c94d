/*
 * comparison.h: compares the arms of an experiment with its baseline, from the trained segments:
 * figures, proof of equal work, and a verdict (proto/stats/verdict.h). gpt2d writes the result to
 * experiment.json, and `gpt2ctl compare` prints the same result. JSON in, JSON out; no I/O.
 */
#ifndef GPT2D_PROTO_EXPERIMENT_COMPARISON_H
#define GPT2D_PROTO_EXPERIMENT_COMPARISON_H

#include <jansson.h>
#include <stddef.h>

struct estimate;
struct spec;

/* Prefix of the reason of a segment whose arm has failed, also of skipped segments of that arm. */
#define COMPARISON_ARM_FAILED "arm_failed: "

/*
 * show: the members `run` and `segments` of the reply to "show", all segments of the run. spec: the
 * run's. baseline: an arm's name; NULL: the first arm. 0 and *out, owned by the caller; its members
 * are in proto/schema (comparison). -ENOENT: no such arm. -ENODATA: no segment is done.
 */
int comparison_make(
	const struct spec *spec, const json_t *show, const char *baseline, json_t **out);
/* The members of `estimate` in proto/schema. */
json_t *comparison_estimate_json(const struct estimate *e);

#endif

/*
 * spec_resolve.h: layers of values to resolved configurations: defaults, presets, the batch triple,
 * work, the rules between keys and between arms.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_RESOLVE_H
#define GPT2D_PROTO_SPEC_SPEC_RESOLVE_H

#include "proto/spec/spec_read.h"

/* Fills a zeroed *spec. What is wrong is added to errors. */
void spec_resolve(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors);

/* ---- one configuration on its way, for the files of this room ---- */

struct spec_resolving {
	const struct spec_options *options;
	struct spec_errors *errors;
	struct spec_layer values; /* arm over base over defaults */
	const char *arm;          /* NULL: the base, or a spec without arms */
	struct spec_config *config;
};

/* Report at the place where key's value came from. */
void spec_resolve_complain(const struct spec_resolving *r, enum spec_key key, const char *format,
	...) __attribute__((format(printf, 3, 4)));
bool spec_resolve_given(const struct spec_resolving *r, enum spec_key key);
bool spec_resolve_wrong(const struct spec_resolving *r, enum spec_key key);

/* gpus, the batch triple, work, and the sizes that follow (spec_work.c). */
void spec_resolve_work(struct spec_resolving *r);
/* Equal work over arms (spec_work.c). */
void spec_resolve_arms(
	const struct spec_source *source, const struct spec *spec, struct spec_errors *errors);

#endif

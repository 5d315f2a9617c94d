/*
 * spec_resolve.h: layers of values to resolved configurations: defaults, presets, the batch triple,
 * work, the rules between keys and between arms.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_RESOLVE_H
#define GPT2D_PROTO_SPEC_SPEC_RESOLVE_H

#include "proto/spec/spec_read.h"

/* Fills a zeroed *spec, and adds errors. */
void spec_resolve(const struct spec_source *source, const struct spec_options *options,
	struct spec *spec, struct spec_errors *errors);

#endif

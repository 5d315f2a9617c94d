/*
 * spec.h: the run spec, from JSON text to resolved configurations. One parser for gpt2ctl, gpt2d
 * and the engines. The keys are in one table (spec_table.c): a row has the key's type, range,
 * default, help, JSON Schema and manual text. Nothing is rounded, coerced or ignored: every
 * unknown, duplicate, wrong-typed, out-of-range or contradictory key is an error with file, line
 * and key, and all errors of a file are reported together. Keys that begin with "x_" and the key
 * "comment" are free for notes.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_H
#define GPT2D_PROTO_SPEC_SPEC_H

#include <stdio.h>

#include "proto/spec/spec_config.h"
#include "proto/spec/spec_error.h"

/*
 * Text (n bytes, need not end in NUL) to a resolved spec. 0, or -EINVAL with errors filled
 * (n >= 1). *out is written on success only and freed with spec_free.
 */
int spec_parse(const char *text, size_t n, const struct spec_options *options, struct spec **out,
	struct spec_errors *errors);
struct spec *spec_copy(const struct spec *spec); /* freed with spec_free */
void spec_free(struct spec *spec);               /* takes NULL */

/* Number of segments of the spec's design, and their order; out has room for all of them. */
size_t spec_segments(const struct spec *spec);
void spec_order(const struct spec *spec, struct design_segment *out);

/*
 * Calls found for each key in which two arms differ, in table order, with the values as JSON texts
 * that are valid during the call.
 */
struct spec_row;
void spec_differences(const struct spec *spec, size_t arm, size_t other,
	void (*found)(const struct spec_row *row, const char *own, const char *others, void *arg),
	void *arg);

/*
 * ---- canonical form: all keys that apply, in table order, with defaults; the first arm's values
 * as the base, and for each arm its differences; parses back to the same spec ----
 */

/* A malloc'd NUL-terminated JSON text. */
char *spec_canonical(const struct spec *spec);
/* The canonical text of arm i alone, as a spec without arms and design: the spec of a segment. */
char *spec_canonical_arm(const struct spec *spec, size_t arm);

enum { SPEC_HASH_HEX = 64 };
/* SHA-256 of a canonical text, hexadecimal: the identity of a run, or of an arm. */
void spec_hash(const char *canonical, char out[SPEC_HASH_HEX + 1]);

/* ---- the table, for schema and manual: spec_docs.c ---- */

void spec_print_schema(FILE *out); /* JSON Schema 2020-12 */
void spec_print_man(FILE *out);    /* mdoc list items, one per key */

#endif

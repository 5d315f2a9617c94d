/*
 * spec_json.h: a strict reader of JSON text (RFC 8259) that keeps the place of each value. Beyond
 * the RFC it refuses duplicate keys (compared after escapes are resolved), NUL characters, nesting
 * deeper than SPEC_JSON_DEPTH_MAX and numbers of more than SPEC_JSON_NUMBER_MAX characters. Time is
 * n log n in the text.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_JSON_H
#define GPT2D_PROTO_SPEC_SPEC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/spec/spec_config.h"
#include "proto/spec/spec_error.h"

enum { SPEC_JSON_DEPTH_MAX = 32, SPEC_JSON_NUMBER_MAX = 1000 };

enum spec_json_type {
	SPEC_JSON_NULL,
	SPEC_JSON_FALSE,
	SPEC_JSON_TRUE,
	SPEC_JSON_NUMBER,
	SPEC_JSON_STRING,
	SPEC_JSON_ARRAY,
	SPEC_JSON_OBJECT,
};

struct spec_json_node {
	enum spec_json_type type;
	bool duplicate;       /* a member with a duplicate key */
	struct spec_place at; /* for a member: place of its key */
	const char *key;      /* for a member, NUL-terminated UTF-8; else NULL */
	const char *text;     /* string: decoded; number: as written; NUL-terminated */
	uint32_t child;       /* array, object: the first one; 0: none */
	uint32_t next;        /* the next of the same parent; 0: none */
	uint32_t children;
};

struct spec_json {
	struct spec_json_node *node; /* node[0] is the whole value */
	size_t n;
	char *pool; /* the strings */
};

/* 0, or -EINVAL with errors added. *out is written on success only. */
int spec_json_parse(const char *text, size_t n, struct spec_json *out, struct spec_errors *errors);
/*
 * The same for a text that must be an object; another value is refused at its first character. *out
 * is also written if the only errors are duplicate keys, so that the caller can find more errors.
 */
int spec_json_parse_object(
	const char *text, size_t n, struct spec_json *out, struct spec_errors *errors);
void spec_json_finish(struct spec_json *json);

/*
 * The member of object, a node, with this dotted key; NULL: none. Keys may have dots themselves, so
 * all ways to split the key are tried.
 */
const struct spec_json_node *spec_json_find(
	const struct spec_json *json, const struct spec_json_node *object, const char *key);

/* A description of a node for a message: `the string "x"`, `true`, `an object`. Returns text. */
const char *spec_json_describe(const struct spec_json_node *node, char *text, size_t bytes);

enum spec_json_integer { SPEC_JSON_WHOLE, SPEC_JSON_FRACTION, SPEC_JSON_TOO_BIG };
/* A JSON number ("200", "2e8", "2.0") to an integer, exact or refused. */
enum spec_json_integer spec_json_int64(const char *number, int64_t *out);

/*
 * A JSON number to the nearest double, independent of the locale; -ERANGE: too large or too small.
 */
int spec_json_real(const char *number, double *out);

enum { SPEC_JSON_REAL_BYTES = 32 };
/*
 * The shortest text that reads back to the same double, independent of the locale. value is finite.
 */
void spec_json_format_real(double value, char out[SPEC_JSON_REAL_BYTES]);

#endif

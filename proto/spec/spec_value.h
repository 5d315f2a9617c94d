/*
 * spec_value.h: one JSON value to one typed value by its row of the table, and a stored field back
 * to JSON text.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_VALUE_H
#define GPT2D_PROTO_SPEC_SPEC_VALUE_H

#include <stdio.h>

#include "proto/spec/spec_json.h"
#include "proto/spec/spec_table.h"

enum spec_state {
	SPEC_ABSENT,
	SPEC_DEFAULT,
	SPEC_GIVEN,
	SPEC_WRONG, /* given, refused, and reported: other rules keep quiet about it */
};

struct spec_value {
	enum spec_state state;
	struct spec_place at; /* none: from --set, or a default */
	bool from_set;        /* --set said so */
	bool from_arm;        /* an arm's own */
	union {
		bool b;
		int64_t i;
		double real[2];
		int choice;
		const char *s; /* belongs to a struct spec_json or to the caller's options */
	};
};

/* True and the value (state untouched); false with the reason in message. */
bool spec_value_read(const struct spec_row *row, const struct spec_json *json,
	const struct spec_json_node *node, struct spec_value *value, char *message, size_t bytes);

/* Into row's field; row->field is not SPEC_NO_FIELD, strings fit (spec_value_read saw to it). */
void spec_value_store(const struct spec_row *row, const struct spec_value *value, void *field);

/* The field as JSON. */
void spec_value_print(const struct spec_row *row, const void *field, FILE *out);
/* Is the field 0 or ""? */
bool spec_value_empty(const struct spec_row *row, const void *field);
bool spec_value_same(const struct spec_row *row, const void *a, const void *b);

/* A string in quotes, escaped as JSON. */
void spec_value_print_string(const char *s, FILE *out);

#endif

/*
 * spec_value.h: converts one JSON value to a typed value by its row of the table, and a field back
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
	SPEC_WRONG, /* given, but invalid and already reported: other rules skip it */
};

struct spec_value {
	enum spec_state state;
	struct spec_place at; /* place in the text; none: from --set, or a default */
	bool from_set;        /* from --set */
	bool from_arm;        /* an arm's own value */
	union {
		bool b;
		int64_t i;
		double real[2];
		int choice;
		const char *s; /* belongs to a struct spec_json or to the caller's options */
	};
};

/* True and the value (state unchanged); false with the reason in message. */
bool spec_value_read(const struct spec_row *row, const struct spec_json *json,
	const struct spec_json_node *node, struct spec_value *value, char *message, size_t bytes);

/*
 * Stores into row's field; row->field is not SPEC_NO_FIELD; spec_value_read has checked that
 * strings fit.
 */
void spec_value_store(const struct spec_row *row, const struct spec_value *value, void *field);

/* The field as JSON. */
void spec_value_print(const struct spec_row *row, const void *field, FILE *out);
/* Whether the field is 0 or "". */
bool spec_value_empty(const struct spec_row *row, const void *field);
bool spec_value_same(const struct spec_row *row, const void *a, const void *b);

/* A string in quotes, escaped as JSON. */
void spec_value_print_string(const char *s, FILE *out);

#endif

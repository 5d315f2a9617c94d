/*
 * spec_error.h: the errors of a spec, collected and printed as "FILE:LINE:COLUMN: KEY: what was
 * found, what is allowed".
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_ERROR_H
#define GPT2D_PROTO_SPEC_SPEC_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* From 1, in characters; line 0: no place of the text. */
struct spec_place {
	int line, column;
};

struct spec_error {
	struct spec_place at;
	char key[256]; /* dotted path, empty when none applies */
	char message[512];
};
struct spec_errors {
	size_t n;
	struct spec_error error[64];
	size_t dropped; /* errors beyond the 64 kept */
};
void spec_error_print(const struct spec_error *error, const char *file, FILE *out);
void spec_errors_print(const struct spec_errors *errors, const char *file, FILE *out);

/*
 * Add one error; beyond the list's room it is only counted. Text that came from a user may be part
 * of key and message: control characters and broken UTF-8 become '?', what is too long ends in
 * "...". The same error is kept once (a wrong base value shows in every arm).
 */
void spec_error_add(struct spec_errors *errors, struct spec_place at, const char *key,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* False when an added error would only be counted: no need to work for its text. */
bool spec_error_room(const struct spec_errors *errors);

#endif

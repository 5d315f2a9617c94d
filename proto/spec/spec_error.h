/*
 * spec_error.h: the errors of a spec, collected and printed as "FILE:LINE:COLUMN: KEY: what was
 * found, what is allowed".
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_ERROR_H
#define GPT2D_PROTO_SPEC_SPEC_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* From 1, in characters; line 0: not in the text. */
struct spec_place {
	int line, column;
};

struct spec_error {
	struct spec_place at;
	char key[256]; /* dotted path, empty if none applies */
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
 * Add one error; errors beyond the list's room are only counted. key and message may contain text
 * from a user: control characters and invalid UTF-8 become '?', and long text ends in "...". Equal
 * errors are kept once (a wrong base value shows in every arm).
 */
void spec_error_add(struct spec_errors *errors, struct spec_place at, const char *key,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* False if an added error would only be counted, so that the caller can skip formatting. */
bool spec_error_room(const struct spec_errors *errors);

#endif

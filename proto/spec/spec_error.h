/*
 * spec_error.h: adding to a spec's list of errors. spec.h has the list itself and its printing.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_ERROR_H
#define GPT2D_PROTO_SPEC_SPEC_ERROR_H

#include <stdbool.h>

#include "proto/spec/spec.h"

/*
 * Add one error; beyond the list's room it is only counted. Text that came from a user may be part
 * of key and message: control characters and broken UTF-8 become '?', what is too long ends in
 * "...". The same error is kept once (a wrong base value shows in every arm).
 */
void spec_error_add(struct spec_errors *errors, int line, const char *key, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* False when an added error would only be counted: no need to work for its text. */
bool spec_error_room(const struct spec_errors *errors);

#endif

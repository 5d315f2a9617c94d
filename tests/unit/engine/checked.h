/*
 * checked.h: a small spec of two ranks with a token file of its own, and what check_run says of it.
 */
#ifndef GPT2D_TESTS_UNIT_ENGINE_CHECKED_H
#define GPT2D_TESTS_UNIT_ENGINE_CHECKED_H

#include <jansson.h>
#include <stdint.h>

#include "proto/spec/spec.h"

/* What the last check_run gave. */
extern json_t *checked_errors, *checked;

int checked_setup(void **state);
int checked_teardown(void **state);

/* Writes the file again: n tokens below 257, the last one id. */
void checked_write_tokens(int64_t n, uint16_t id);
struct spec_config checked_config(void);

/* By the CPU's engine of world ranks with so much memory, half of it free; 0: not known. */
void checked_run(const struct spec_config *c, int world, int64_t memory);
/* By an engine of two GPUs. */
void checked_run_cuda(const struct spec_config *c, int64_t memory);

/* Of error i. */
const char *checked_key(size_t i);
const char *checked_message(size_t i);
/* It is the only one, with that in its message. */
void checked_assert_error(const char *key, const char *message);
/* The integer OBJECT.KEY of what was found. */
int64_t checked_number(const char *object, const char *key);

#endif

/*
 * state.h: a state directory of a gpt2d, to be damaged: three runs, one done, one in training, one
 * queued.
 */
#ifndef GPT2D_TESTS_FUZZ_STATE_H
#define GPT2D_TESTS_FUZZ_STATE_H

#include <stdint.h>
#include <stddef.h>

enum state_file { STATE_DB, STATE_WAL, STATE_FILES };

struct state_copy {
	uint8_t *bytes; /* NULL: no such file */
	size_t n;
};

/*
 * Of the database and its log, made at the first call and kept: as they lie there after a gpt2d
 * that was stopped, or (killed) after one that was killed.
 */
const struct state_copy *state_of_stopped(void);
const struct state_copy *state_of_killed(void);

/* A fresh folder (house.h) with these files in it. */
void state_put(const struct state_copy files[STATE_FILES]);
/* Runs a gpt2d on it: it starts or refuses to, and answers all requests. */
void state_ask(void);

#endif

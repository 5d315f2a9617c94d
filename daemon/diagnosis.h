/*
 * diagnosis.h: what the checks of diagnose_*.c share: how one says what it found.
 */
#ifndef GPT2D_DIAGNOSIS_H
#define GPT2D_DIAGNOSIS_H

#include <jansson.h>

#include "daemon/engine_program.h"
#include "daemon/settings.h"

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct diagnosis {
	const struct settings *settings;
	const char *errors;            /* of the settings; empty: none */
	struct engine_program program; /* path empty: none was found */
	json_t *checks;                /* array */
	int failed;
};

/* One line. advice: what to do, NULL with VERDICT_OK. */
void diagnosis_add(struct diagnosis *d, const char *check, enum verdict verdict, const char *advice,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The checks, in files by what they look at. */
void diagnose_engine(struct diagnosis *d);    /* the program, its libraries, its answer */
void diagnose_socket(struct diagnosis *d);    /* its place, and who listens there */
void diagnose_state_dir(struct diagnosis *d); /* rights, file system, room, a database in it */
void diagnose_machine(struct diagnosis *d);   /* processors, memory, limits, GPUs, clock */

#endif

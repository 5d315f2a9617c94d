/*
 * diagnosis.h: gpt2d --check: what gpt2d needs, looked at without starting it or changing anything
 * that is there. A line for each thing: ok, warn or fail, what was found, and what to do.
 */
#ifndef GPT2D_DAEMON_CONFIG_DIAGNOSIS_H
#define GPT2D_DAEMON_CONFIG_DIAGNOSIS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "daemon/engines/engine_program.h"
#include "daemon/config/settings.h"

/*
 * errors: what was wrong with the settings (then s holds defaults), or empty. As JSON:
 *   {version, build, ok, checks: [{check, verdict: ok|warn|fail, found, advice or null}]}
 * The number of things that failed, or -ENOMEM.
 */
int diagnosis_run(const struct settings *s, const char *errors, bool json, FILE *out);

/* ---- for the checks ---- */

enum { DIAGNOSIS_DATA = 1, DIAGNOSIS_METRICS = 2 };

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct diagnosis {
	const struct settings *settings;
	const char *errors;            /* of the settings; empty: none */
	struct engine_program program; /* path empty: none was found */
	json_t *checks;                /* array */
	int failed;
	unsigned warned; /* DIAGNOSIS_*: what was said not to be right, of the same check */
};

/* One line. advice: what to do, NULL with VERDICT_OK. */
void diagnosis_add(struct diagnosis *d, const char *check, enum verdict verdict, const char *advice,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The checks, in diagnosis_*.c. */
void diagnosis_engine(struct diagnosis *d);    /* the program, its libraries, its answer */
void diagnosis_socket(struct diagnosis *d);    /* its place, and who listens there */
void diagnosis_state_dir(struct diagnosis *d); /* rights, file system, room, the queue */
void diagnosis_files(struct diagnosis *d);     /* log, data, metrics */
void diagnosis_machine(struct diagnosis *d);   /* processors, memory, limits, GPUs, clock */

#endif

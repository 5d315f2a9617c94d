/*
 * checks.h: one table of checks of gpt2d's settings, files and machine. They change nothing. gpt2d
 * runs the checks of its files at the start, -n runs the same ones, and --check runs all.
 */
#ifndef GPT2D_DAEMON_CHECKS_H
#define GPT2D_DAEMON_CHECKS_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/config/settings.h"

enum checks_when { CHECKS_TEST = 1, CHECKS_START = 2, CHECKS_ALL = 4 };

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct finding {
	const char *check; /* the name in the table */
	enum verdict verdict;
	int rc;              /* the negative errno of VERDICT_FAIL, or 0 */
	const char *setting; /* the setting that it checks, or NULL */
	bool retry;          /* the cause may be gone at the next start */
	const char *text;
	const char *advice; /* NULL with VERDICT_OK */
};

/*
 * Runs the checks of when, one of enum checks_when, and calls found for each finding. errors: what
 * was wrong with the settings (then s has the defaults), or empty. Returns how many failed.
 */
int checks_run(enum checks_when when, const struct settings *s, const char *errors,
	void (*found)(const struct finding *finding, void *arg), void *arg);

/*
 * --check: a line for each finding, or as JSON
 *   {version, build, ok, checks: [{check, verdict: ok|warn|fail, found, advice or null}]}
 * Returns how many failed.
 */
int checks_print(const struct settings *s, const char *errors, bool json, FILE *out);

/*
 * Raises the soft limits on descriptors, processor time and the size of files to the hard ones, for
 * gpt2d and its engines. Call it before there is a second thread.
 */
void checks_raise_limits(void);

#endif

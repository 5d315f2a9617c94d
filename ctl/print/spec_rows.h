/* spec_rows.h: what is wrong with a spec, row by row, as its writer finds it. */
#ifndef GPT2D_CTL_PRINT_SPEC_ROWS_H
#define GPT2D_CTL_PRINT_SPEC_ROWS_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/arguments.h"
#include "ctl/verbs/submit.h"

/* Whether --set gives that key. */
bool spec_rows_is_set(const struct arguments *args, const char *key);

enum { SPEC_ROWS_ADVICE = 300 };

/*
 * Whether key is wrong as rerun was given another "gpus" alone, which no size of the stored batch
 * fits; out then says what else is to be set.
 */
bool spec_rows_advise_gpus(const struct arguments *args, const struct submit_source *source,
	const char *key, char *out, size_t out_bytes);

/*
 * A new array of rows {line, key, message} of a daemon's: its lines are of what was sent, so that a
 * key is looked for in the options, then in the file. A key that an arm has from the whole spec is
 * told once, as the spec's; the message then says in which arms it is wrong, if not in all that
 * have it from there. In the order of lines.
 */
json_t *spec_rows_place(const struct arguments *args, const struct submit_source *source,
	const json_t *spec, const json_t *rows);

/* A new array: the rows in the order of their lines, those without one last. */
json_t *spec_rows_sorted(const json_t *rows);

#endif

/* deepspeed_source.h: a DeepSpeed configuration as the source of a spec, with its list of keys. */
#ifndef GPT2D_CTL_VERBS_DEEPSPEED_SOURCE_H
#define GPT2D_CTL_VERBS_DEEPSPEED_SOURCE_H

#include "ctl/import/deepspeed.h"
#include "ctl/verbs/spec_errors.h"

/* The values of --set, the caller's array. */
const char **deepspeed_source_sets(const struct options *args, size_t *n);

/* A line of the list on stderr, unless --quiet is given. */
void deepspeed_source_print(struct ctl *ctl, const struct spec_source *source, struct spec_place at,
	const char *key, const char *kind, const char *text);

/*
 * Reads source's text as a DeepSpeed configuration, and prints the list of its keys on stderr,
 * unless --quiet is given. 0, or the exit status of a printed error: the file cannot be read, or
 * --strict is given and a key has no counterpart. *import is the caller's in every case.
 */
int deepspeed_source_read(
	struct ctl *ctl, const struct spec_source *source, struct deepspeed_import *import);

/* The same, with the spec as source's text, and the places of the file. */
int deepspeed_source_convert(
	struct ctl *ctl, struct spec_source *source, struct deepspeed_import *import);

#endif

/* import_deepspeed.h: a DeepSpeed configuration as the source of a spec, with its list of keys. */
#ifndef GPT2D_CTL_VERBS_IMPORT_DEEPSPEED_H
#define GPT2D_CTL_VERBS_IMPORT_DEEPSPEED_H

#include "ctl/import/deepspeed.h"
#include "ctl/verbs/spec_source.h"

/*
 * Reads source's text as a DeepSpeed configuration, prints the list of its keys on stderr unless
 * --quiet is given, and makes the spec source's text, with the places of the file. 0, or the exit
 * status of the errors that were printed: the file cannot be read, or --strict is given and a key
 * has no counterpart. *import is the caller's in every case.
 */
int import_deepspeed_convert(
	struct ctl *ctl, struct spec_source *source, struct deepspeed_import *import);

#endif

/*
 * artifact_check.h: whether the files of a run are those that its markers were written for. Each
 * RUN_COMPLETE.txt names the SHA-256 of the specification and the figures beside it; of others the
 * engine told the size.
 */
#ifndef GPT2D_CTL_RESULTS_ARTIFACT_CHECK_H
#define GPT2D_CTL_RESULTS_ARTIFACT_CHECK_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/link/client.h"
#include "ctl/ctl.h"

/*
 * result: the reply to "artifacts", all pages. The markers in it are read; each file of another
 * hash than the marker beside it has, or of another size than the engine wrote, gets "altered", the
 * reason. gpt2d has given it to markers of what is not done, which are not read. A file whose hash
 * could not be taken is left alone, and so is what lies beside a marker that cannot be had any
 * more. *altered: whether there are such files. 0, or an exit code with e when gpt2d does not
 * answer.
 */
int artifact_check_all(struct client *c, json_t *result, bool *altered, struct ctl_error *e);

#endif

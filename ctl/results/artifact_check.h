/*
 * artifact_check.h: whether the files of a run are those that the engine wrote. Each
 * RUN_COMPLETE.txt has the SHA-256 of the specification and the metrics beside it; of other files
 * the engine reported the size.
 */
#ifndef GPT2D_CTL_RESULTS_ARTIFACT_CHECK_H
#define GPT2D_CTL_RESULTS_ARTIFACT_CHECK_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/link/client.h"

/*
 * result: the reply to "artifacts", all pages. A file whose hash is not the one in the marker
 * beside it, or whose size is not the one reported, gets "altered", the reason. gpt2d itself marks
 * RUN_COMPLETE.txt of what is not done. *altered: whether there is such a file. 0, or an exit
 * status with e when gpt2d does not answer.
 */
int artifact_check_all(struct client *c, json_t *result, bool *altered, struct ctl_error *e);

#endif

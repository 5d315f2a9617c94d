/*
 * model_export.h: the weights of a checkpoint as a folder that Hugging Face's transformers (4.x)
 * loads with GPT2LMHeadModel.from_pretrained: model.safetensors and config.json.
 *
 * Conv1D of transformers keeps (inputs, outputs): those four matrices of a block are transposed.
 * The vocabulary is the real one, without the padded rows. An untied head is lm_head.weight.
 */
#ifndef GPT2D_CTL_RESULTS_MODEL_EXPORT_H
#define GPT2D_CTL_RESULTS_MODEL_EXPORT_H

#include <stdint.h>

#include "ctl/link/ctl_error.h"
#include "proto/checkpoint.h"
#include "proto/safetensors.h"

#define MODEL_EXPORT_WEIGHTS "model.safetensors"
#define MODEL_EXPORT_CONFIG  "config.json"

struct model_exported {
	int64_t parameters; /* of the real vocabulary */
	int64_t bytes;      /* of model.safetensors */
};

/*
 * Writes both files to dir, which is made if it does not exist; a file that is there is not
 * replaced. Each file is complete or absent. 0, or CTL_USAGE or CTL_TRANSPORT with e.
 */
int model_export(const struct checkpoint *c, enum safetensors_dtype dtype, const char *dir,
	struct model_exported *out, struct ctl_error *e);

#endif

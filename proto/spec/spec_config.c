#include "proto/spec/spec_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *spec_precision_name(enum spec_precision precision)
{
	static const char *const names[] = {[SPEC_FP32] = "fp32",
		[SPEC_TF32] = "tf32",
		[SPEC_BF16] = "bf16",
		[SPEC_FP16] = "fp16"};

	return names[precision];
}

const char *spec_recompute_name(enum spec_recompute recompute)
{
	static const char *const names[] = {[SPEC_RECOMPUTE_NONE] = "none",
		[SPEC_RECOMPUTE_SELECTIVE] = "selective",
		[SPEC_RECOMPUTE_FULL] = "full"};

	return names[recompute];
}

const char *spec_file_key(const struct spec_config *config, const char **path)
{
	const struct {
		const char *key, *path;
	} files[] = {
		{"data.train", config->data_train},
		{"data.val", config->data_val},
		{"init_from.safetensors", config->init_safetensors},
		{"resume_from", spec_run_id(config->resume_from) ? "" : config->resume_from},
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		*path = files[i].path;
		if (files[i].path[0] != '\0')
			return files[i].key;
	}
	return NULL;
}

bool spec_checkpoints(const struct spec_config *config)
{
	return config->checkpoint_every > 0 || config->checkpoint_at_end;
}

int64_t spec_run_id(const char *text)
{
	long long id;

	if (text[0] < '1' || text[0] > '9' || text[strspn(text, "0123456789")] != '\0')
		return 0;
	errno = 0;
	id = strtoll(text, NULL, 10);
	return errno == 0 ? id : 0;
}

int64_t spec_work_tokens(const struct spec_config *config)
{
	return config->optimizer_steps * config->batch * config->seq_len;
}

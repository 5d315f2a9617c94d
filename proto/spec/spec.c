#include "proto/spec/spec.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/spec/spec_resolve.h"

int spec_parse(const char *text, size_t n, const struct spec_options *options, struct spec **out,
	struct spec_errors *errors)
{
	struct spec_source *source = NULL;
	struct spec *spec = NULL;
	int rc;

	errors->n = 0;
	errors->dropped = 0;
	rc = spec_read(text, n, options, &source, errors);
	if (rc == -EBADMSG || rc == -ENOMEM)
		goto out;
	spec = calloc(1, sizeof(*spec));
	if (!spec) {
		rc = -ENOMEM;
		goto out;
	}
	spec_resolve(source, options, spec, errors);
	rc = errors->n > 0 ? -EINVAL : 0;
out:
	spec_source_destroy(source);
	if (rc) {
		free(spec);
		return rc == -EBADMSG ? -EINVAL : rc;
	}
	*out = spec;
	return 0;
}

void spec_free(struct spec *spec)
{
	free(spec);
}

int64_t spec_work_tokens(const struct spec_config *config)
{
	return config->optimizer_steps * config->batch * config->seq_len;
}

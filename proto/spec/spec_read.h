/*
 * spec_read.h: JSON text and --set overrides to layers of typed values with their places. Uses the
 * table, but no rules between keys.
 */
#ifndef GPT2D_PROTO_SPEC_SPEC_READ_H
#define GPT2D_PROTO_SPEC_SPEC_READ_H

#include "proto/spec/spec_value.h"

struct spec_layer {
	struct spec_value value[SPEC_KEY_COUNT];
};

struct spec_source_arm {
	char name[SPEC_NAME_MAX + 1];
	struct spec_place at;
	struct spec_layer layer, sets; /* values of --set, which override layer */
};

struct spec_source {
	const struct spec_layer *defaults; /* the table's */
	struct spec_layer base, sets;
	bool has_arms;
	bool swept; /* the arms come from a sweep */
	size_t n_arms;
	struct spec_source_arm *arms; /* NULL: none */
	/* private: keeps the strings */
	struct spec_json *json;
	size_t n_json;
};

/*
 * 0; -EINVAL with errors added, and *out has all values that could be read; -EBADMSG with errors
 * added: the text is not a JSON object. The caller releases *out with spec_source_destroy in every
 * case.
 */
int spec_read(const char *text, size_t n, const struct spec_options *options,
	struct spec_source **out, struct spec_errors *errors);
void spec_source_destroy(struct spec_source *source); /* takes NULL */

/*
 * Override the values of `under` with those of `over`; a leading key first clears its group below.
 */
void spec_layer_put(struct spec_layer *under, const struct spec_layer *over);

#endif

/*
 * spec_draft.h: an incomplete spec from another program's file: values by key, as JSON text.
 * Required keys may be missing.
 */
#ifndef GPT2D_CTL_IMPORT_SPEC_DRAFT_H
#define GPT2D_CTL_IMPORT_SPEC_DRAFT_H

#include "proto/spec/spec.h"
#include "proto/spec/spec_json.h"
#include "proto/spec/spec_table.h"

struct spec_draft {
	char *value[SPEC_KEY_COUNT];          /* owned; NULL: not given */
	struct spec_place at[SPEC_KEY_COUNT]; /* in the other program's file; line 0: none */
};

struct spec_draft_missing {
	enum spec_key key;
	const char *advice; /* "--set seq_len=1024" */
};
enum { SPEC_DRAFT_MISSING_MAX = 8 };

/* Takes value. */
void spec_draft_put(struct spec_draft *draft, enum spec_key key, struct spec_place at, char *value);
/* A node as JSON text, the caller's. */
char *spec_draft_json(const struct spec_json *json, const struct spec_json_node *node);
void spec_draft_finish(struct spec_draft *draft);

/* The text of --set for the key; NULL: none. The last one counts. */
const char *spec_draft_set_of(const char *const *sets, size_t n_sets, const char *key);

/*
 * Writes the required keys that neither the draft nor --set has to missing; returns their number.
 */
size_t spec_draft_missing(const struct spec_draft *draft, const char *const *sets, size_t n_sets,
	struct spec_draft_missing missing[SPEC_DRAFT_MISSING_MAX]);

/*
 * Checks the draft with --set by the rules of a spec, except that keys may be missing: 0, or
 * -EINVAL with errors at the places of draft->at. The options' sets are those of --set.
 */
int spec_draft_check(const struct spec_draft *draft, const struct spec_options *options,
	struct spec_errors *errors);

/* Merges --set into the draft, which spec_draft_check has accepted. */
void spec_draft_apply(struct spec_draft *draft, const char *const *sets, size_t n_sets);

/* The draft as the text of a spec, the caller's. */
char *spec_draft_text(const struct spec_draft *draft);

/* Where the error of a spec's key is in the other program's file; {0}: nowhere. */
struct spec_place spec_draft_place(const struct spec_draft *draft, const char *key);

#endif

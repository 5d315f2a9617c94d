#include "ctl/verbs/deepspeed_source.h"

#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

const char **deepspeed_source_sets(const struct options *args, size_t *n)
{
	const char **sets = memory_zeroed(args->n_values + 1, sizeof(*sets));

	*n = options_all(args, "set", sets);
	return sets;
}

/* ---- the list ---- */

static bool is_lost(const struct deepspeed_note *n)
{
	return n->kind == DEEPSPEED_UNSUPPORTED || n->kind == DEEPSPEED_UNKNOWN;
}

void deepspeed_source_print(struct ctl *ctl, const struct spec_source *source, struct spec_place at,
	const char *key, const char *kind, const char *text)
{
	struct spec_error line = {.at = at};
	char name[SPEC_PATH_MAX], message[sizeof(line.message)];

	if (options_has(source->args, "quiet"))
		return;
	snprintf(message, sizeof(message), "%s: %s", kind, text);
	term_clean(source->name, name, sizeof(name));
	term_clean(key, line.key, sizeof(line.key));
	term_clean(message, line.message, sizeof(line.message));
	spec_error_print(&line, name, ctl->output.err.file);
}

/* With --strict: the keys that are lost, as errors. */
static int refuse_lost(
	struct ctl *ctl, const struct spec_source *source, const struct deepspeed_import *import)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	int exit = 0;

	for (size_t i = 0; i < import->n_notes; i++) {
		const struct deepspeed_note *n = &import->notes[i];

		if (is_lost(n))
			spec_error_add(errors, n->at, n->key, "%s (--strict): %s",
				deepspeed_kind_name(n->kind), n->text);
	}
	if (errors->n > 0) {
		spec_errors_report(&ctl->output, source, errors);
		exit = CTL_USAGE;
	}
	free(errors);
	return exit;
}

int deepspeed_source_read(
	struct ctl *ctl, const struct spec_source *source, struct deepspeed_import *import)
{
	struct spec_errors *errors = memory_zeroed(1, sizeof(*errors));
	const char **sets;
	size_t n_sets;
	int exit = 0;

	sets = deepspeed_source_sets(source->args, &n_sets);
	if (deepspeed_import(source->text, source->n, sets, n_sets, import, errors) != 0) {
		spec_errors_report(&ctl->output, source, errors);
		exit = CTL_USAGE;
	} else if (options_has(source->args, "strict")) {
		exit = refuse_lost(ctl, source, import);
	}
	for (size_t i = 0; !exit && i < import->n_notes; i++) {
		const struct deepspeed_note *n = &import->notes[i];

		deepspeed_source_print(
			ctl, source, n->at, n->key, deepspeed_kind_name(n->kind), n->text);
	}
	free(sets);
	free(errors);
	return exit;
}

int deepspeed_source_convert(
	struct ctl *ctl, struct spec_source *source, struct deepspeed_import *import)
{
	const int exit = deepspeed_source_read(ctl, source, import);

	if (exit)
		return exit;
	free((char *)source->text);
	source->text = spec_draft_text(&import->draft);
	source->n = strlen(source->text);
	source->draft = &import->draft;
	return 0;
}

#include "ctl/print/spec_line.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/spec/spec_json.h"

/*
 * The place of key below the object at index; {0}: none. An arm's name or a key of an arm may have
 * dots of its own, so that each way to take key apart is tried.
 */
static struct spec_place find(const struct spec_json *json, uint32_t index, const char *key)
{
	const struct spec_json_node *node = &json->node[index];

	if (node->type != SPEC_JSON_OBJECT)
		return (struct spec_place){0};
	for (uint32_t at = node->child; at != 0; at = json->node[at].next) {
		const struct spec_json_node *member = &json->node[at];
		size_t n = strlen(member->key);
		struct spec_place at_key = {0};

		if (strncmp(member->key, key, n) != 0)
			continue;
		if (key[n] == '\0')
			return member->at;
		if (key[n] == '.')
			at_key = find(json, at, key + n + 1);
		if (at_key.line > 0)
			return at_key;
	}
	return (struct spec_place){0};
}

struct spec_place spec_line(const char *text, size_t n, const char *key)
{
	struct spec_errors *errors = calloc(1, sizeof(*errors));
	struct spec_json json;
	struct spec_place at = {0};

	if (errors != NULL && spec_json_parse(text, n, &json, errors) == 0) {
		at = find(&json, 0, key);
		spec_json_finish(&json);
	}
	free(errors);
	return at;
}

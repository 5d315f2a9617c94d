#include "daemon/text.h"

#include <stdlib.h>
#include <string.h>

#include "proto/spec_json.h"

void text_clean(char *text)
{
	size_t left = strlen(text), n;

	while (left > 0) {
		n = spec_json_utf8(text, left);
		if (n == 0) {
			*text = '?';
			n = 1;
		}
		text += n;
		left -= n;
	}
}

json_t *text_json(const char *text)
{
	json_t *json = json_string(text);
	char *copy;

	if (json != NULL)
		return json;
	copy = strdup(text);
	if (copy == NULL)
		return NULL;
	text_clean(copy);
	json = json_string(copy);
	free(copy);
	return json;
}

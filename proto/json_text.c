#include "proto/json_text.h"

#include <errno.h>
#include <string.h>

#include "proto/protocol.h"

int json_text_read(const char *text, size_t n, size_t flags, json_t **out, json_error_t *where)
{
	json_error_t ignored;
	json_t *json;

	if (n > PROTOCOL_LINE_MAX)
		return -EINVAL;
	json = json_loadb(text, n, flags, where ? where : &ignored);
	if (json == NULL)
		return -EINVAL;
	*out = json;
	return 0;
}

json_t *json_text_value(const char *text)
{
	json_t *json = NULL;

	if (text == NULL || json_text_read(text, strlen(text), JSON_DECODE_ANY, &json, NULL) < 0)
		return NULL;
	return json;
}

char *json_text_write(const json_t *json, size_t flags, size_t *n)
{
	char *text = json_dumps(json, flags);

	if (text != NULL && n != NULL)
		*n = strlen(text);
	return text;
}

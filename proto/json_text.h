/* json_text.h: JSON from text and to text. */
#ifndef GPT2D_PROTO_JSON_TEXT_H
#define GPT2D_PROTO_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* As json_loadb, of at most PROTOCOL_LINE_MAX bytes: 0, or -EINVAL with where (may be NULL). */
int json_text_read(const char *text, size_t n, size_t flags, json_t **out, json_error_t *where);
/* The value of a text; NULL of NULL and of a text that is not JSON. */
json_t *json_text_value(const char *text);
/* As json_dumps; *n (may be NULL) is its length. The caller frees the text. */
char *json_text_write(const json_t *json, size_t flags, size_t *n);

#endif

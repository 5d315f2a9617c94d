/*
 * json_text.h: JSON from text and to text where there may be no memory. Jansson (2.14) takes that
 * for a fault of the text, or asserts, when it reads, and leaves pieces out when it writes. Here it
 * is -ENOMEM, or NULL, and nothing else.
 */
#ifndef GPT2D_PROTO_JSON_TEXT_H
#define GPT2D_PROTO_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Jansson's memory comes through here from now on: before its first use, once, in a program that
 * has to outlive having none. Without it reading is Jansson's own.
 */
void json_text_init(void);

/*
 * As json_loadb, of at most PROTOCOL_LINE_MAX bytes: 0, -EINVAL with where (may be NULL), or
 * -ENOMEM.
 */
int json_text_read(const char *text, size_t n, size_t flags, json_t **out, json_error_t *where);
/* The same of a string, which is known to be JSON; NULL of it and any failure give NULL. */
json_t *json_text_value(const char *text);

/* As json_dumps: NULL without memory; *n (may be NULL) is its length. */
char *json_text_write(const json_t *json, size_t flags, size_t *n);

/*
 * How often Jansson was given no memory so far: what was made of its functions, some of whose
 * results nobody can check one by one, is whole when the number is the same before and after.
 */
uint64_t json_text_refusals(void);

#endif

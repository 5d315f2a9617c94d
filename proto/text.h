/* text.h: foreign text, which may not be UTF-8 or may be too long to print. */
#ifndef GPT2D_PROTO_TEXT_H
#define GPT2D_PROTO_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Replaces each byte that is not part of a UTF-8 character by '?'. */
void text_clean(char *text);
/* As text_clean, and replaces the bytes of each character that controls a terminal. */
void text_printable(char *text, char control);
/* Replaces the middle of each overlong word by "...". A UTF-8 character may be cut. */
enum { TEXT_WORD_BYTES = 1000 };
void text_shorten(char *text);
/* A JSON string of text, cleaned as by text_clean; text itself is unchanged. */
json_t *text_json(const char *text);

#endif

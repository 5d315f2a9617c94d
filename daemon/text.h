/*
 * text.h: text that came from elsewhere, or was cut to fit, made fit for JSON: what is no UTF-8 in
 * it becomes '?'.
 */
#ifndef GPT2D_TEXT_H
#define GPT2D_TEXT_H

#include <jansson.h>

void text_clean(char *text);
/* Words of more than TEXT_WORD bytes lose their middle to "...": what stands behind is to be
 * seen. */
enum { TEXT_WORD = 1000 };
void text_shorten(char *text);
/* A JSON string of text, which stays as it is; NULL without memory. */
json_t *text_json(const char *text);

#endif

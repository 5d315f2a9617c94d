/* text.h: text that came from elsewhere, or was cut to fit, made fit to be told. */
#ifndef GPT2D_DAEMON_CONFIG_TEXT_H
#define GPT2D_DAEMON_CONFIG_TEXT_H

#include <jansson.h>

/* What is no UTF-8 in it, and so not fit for JSON, becomes '?'. */
void text_clean(char *text);
/* Longer words lose their middle to "...", so that what stands behind is seen; UTF-8 may be cut. */
enum { TEXT_WORD_BYTES = 1000 };
void text_shorten(char *text);
/* A JSON string of text, which stays as it is; NULL without memory. */
json_t *text_json(const char *text);

#endif

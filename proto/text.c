#include "proto/text.h"

#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/utf8.h"

void text_clean(char *text)
{
	size_t left = strlen(text), n;

	while (left > 0) {
		n = utf8_character(text, left);
		if (n == 0) {
			*text = '?';
			n = 1;
		}
		text += n;
		left -= n;
	}
}

void text_printable(char *text, char control)
{
	size_t left, n;

	text_clean(text);
	for (left = strlen(text); left > 0; text += n, left -= n) {
		const unsigned char *c = (const unsigned char *)text;

		n = utf8_character(text, left);
		if (c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0))
			memset(text, control, n);
	}
}

void text_shorten(char *text)
{
	enum { FIRST = 400, LAST = 100 };
	size_t n;

	for (; *text != '\0'; text += n + strspn(text + n, " \n")) {
		n = strcspn(text, " \n");
		if (n <= TEXT_WORD_BYTES)
			continue;
		memcpy(text + FIRST, "...", 3);
		memmove(text + FIRST + 3, text + n - LAST, strlen(text + n - LAST) + 1);
		n = FIRST + 3 + LAST;
	}
}

json_t *text_json(const char *text)
{
	json_t *json = json_string(text);
	char *copy;

	if (json != NULL)
		return json;
	copy = memory_text(text);
	text_clean(copy);
	json = json_string(copy);
	free(copy);
	return json;
}

#include "proto/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

size_t text_utf8(const char *s, size_t left)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t n = 0;

	if (u[0] < 0x80)
		n = 1;
	else if (u[0] >= 0xc2 && u[0] < 0xf5)
		n = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;

	if (n == 0 || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	/* overlong forms, surrogates, beyond U+10FFFF */
	if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] >= 0xa0) ||
		(u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] >= 0x90))
		return 0;
	return n;
}

void text_clean(char *text)
{
	size_t left = strlen(text), n;

	while (left > 0) {
		n = text_utf8(text, left);
		if (n == 0) {
			*text = '?';
			n = 1;
		}
		text += n;
		left -= n;
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

#include "proto/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character that begins with first and the range of its second byte; 0: invalid. */
static size_t character(unsigned char first, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xbf;
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	if (first == 0xe0)
		*low = 0xa0;
	else if (first == 0xed)
		*high = 0x9f;
	else if (first == 0xf0)
		*low = 0x90;
	else if (first == 0xf4)
		*high = 0x8f;
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Bytes of the character at bytes, or with *valid false, bytes that one U+FFFD replaces. */
static size_t step(const unsigned char *bytes, size_t n, int *valid)
{
	unsigned char low, high;
	const size_t length = character(bytes[0], &low, &high);
	size_t i = 1;

	while (i < length && i < n && bytes[i] >= low && bytes[i] <= high) {
		low = 0x80;
		high = 0xbf;
		i++;
	}
	*valid = i == length;
	return i;
}

size_t utf8_character(const char *s, size_t left)
{
	int valid;
	const size_t n = step((const unsigned char *)s, left, &valid);

	return valid && n <= left ? n : 0;
}

size_t utf8_valid(const unsigned char *bytes, size_t n)
{
	size_t at = 0;
	int valid;

	while (at < n) {
		uint64_t eight;
		size_t k;

		if (n - at >= sizeof(eight)) {
			memcpy(&eight, bytes + at, sizeof(eight));
			if ((eight & UINT64_C(0x8080808080808080)) == 0) {
				at += sizeof(eight);
				continue;
			}
		}
		k = step(bytes + at, n - at, &valid);
		if (!valid)
			break;
		at += k;
	}
	return at;
}

size_t utf8_replace(const unsigned char *bytes, size_t n, unsigned char *out, int64_t *replaced)
{
	size_t n_out = 0;

	*replaced = 0;
	for (size_t at = 0; at < n;) {
		const size_t k = utf8_valid(bytes + at, n - at);
		int valid;

		memcpy(out + n_out, bytes + at, k);
		n_out += k;
		at += k;
		if (at < n) {
			at += step(bytes + at, n - at, &valid);
			memcpy(out + n_out, "\xef\xbf\xbd", 3);
			n_out += 3;
			++*replaced;
		}
	}
	return n_out;
}

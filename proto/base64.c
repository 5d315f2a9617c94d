#include "proto/base64.h"

#include <errno.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_length(size_t n)
{
	return (n + 2) / 3 * 4;
}

void base64_encode(const void *bytes, size_t n, char *out)
{
	const unsigned char *in = bytes;

	for (; n > 0; in += 3, out += 4) {
		const size_t k = n < 3 ? n : 3;
		const unsigned v = (unsigned)in[0] << 16 | (k > 1 ? (unsigned)in[1] << 8 : 0U) |
			(k > 2 ? (unsigned)in[2] : 0U);

		out[0] = digits[v >> 18];
		out[1] = digits[v >> 12 & 63];
		out[2] = k > 1 ? digits[v >> 6 & 63] : '=';
		out[3] = k > 2 ? digits[v & 63] : '=';
		n -= k;
	}
	*out = '\0';
}

static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Four characters, the last `pad` of them '=': 0, or -EINVAL. */
static int decode_four(const char *text, int pad, unsigned char out[3])
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++) {
		const int digit = i < 4 - pad ? value_of(text[i]) : 0;

		if (digit < 0)
			return -EINVAL;
		v = v << 6 | (unsigned)digit;
	}
	if ((v & ((1U << (8 * pad)) - 1)) != 0)
		return -EINVAL; /* bits that belong to no byte */
	out[0] = (unsigned char)(v >> 16);
	if (pad < 2)
		out[1] = (unsigned char)(v >> 8 & 255);
	if (pad < 1)
		out[2] = (unsigned char)(v & 255);
	return 0;
}

int base64_decode(const char *text, size_t length, unsigned char *out, size_t *n)
{
	size_t used = 0;
	int pad = 0;

	if (length % 4 != 0)
		return -EINVAL;
	if (length > 0 && text[length - 1] == '=')
		pad = text[length - 2] == '=' ? 2 : 1;
	for (size_t i = 0; i < length; i += 4) {
		const int here = i + 4 == length ? pad : 0;

		if (decode_four(text + i, here, out + used) < 0)
			return -EINVAL;
		used += 3 - (size_t)here;
	}
	*n = used;
	return 0;
}

#include "proto/base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "proto/host/memory.h"

size_t base64_length(size_t n)
{
	return (n + 2) / 3 * 4;
}

void base64_encode(const void *bytes, size_t n, char *out)
{
	EVP_EncodeBlock((unsigned char *)out, bytes, (int)n);
}

/* EVP_DecodeBlock accepts blanks and unused bits, so the bytes are encoded again and compared. */
int base64_decode(const char *text, size_t length, unsigned char *out, size_t *n)
{
	const size_t pad = length > 1 ? (text[length - 1] == '=') + (text[length - 2] == '=') : 0;
	const int decoded = EVP_DecodeBlock(out, (const unsigned char *)text, (int)length);
	char *again;
	int rc = 0;

	if (decoded < 0 || (size_t)decoded != length / 4 * 3)
		return -EINVAL;
	again = memory_resized(NULL, length + 1);
	base64_encode(out, (size_t)decoded - pad, again);
	if (memcmp(again, text, length) != 0)
		rc = -EINVAL;
	free(again);
	if (rc == 0)
		*n = (size_t)decoded - pad;
	return rc;
}

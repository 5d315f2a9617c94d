#include "proto/digest.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/evp.h>

struct digest {
	EVP_MD_CTX *ctx;
};

struct digest *digest_create(void)
{
	struct digest *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	d->ctx = EVP_MD_CTX_new();
	if (d->ctx == NULL || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1) {
		digest_destroy(d);
		return NULL;
	}
	return d;
}

void digest_destroy(struct digest *d)
{
	if (d == NULL)
		return;
	EVP_MD_CTX_free(d->ctx);
	free(d);
}

int digest_add(struct digest *d, const void *bytes, size_t n)
{
	return EVP_DigestUpdate(d->ctx, bytes, n) == 1 ? 0 : -EIO;
}

int digest_finish(struct digest *d, char out[65])
{
	static const char hex[] = "0123456789abcdef";
	unsigned char bytes[EVP_MAX_MD_SIZE];
	unsigned int n = 0;

	if (EVP_DigestFinal_ex(d->ctx, bytes, &n) != 1 || n != 32)
		return -EIO;
	for (unsigned int i = 0; i < 32; i++) {
		out[2 * i] = hex[bytes[i] >> 4];
		out[2 * i + 1] = hex[bytes[i] & 15];
	}
	out[64] = '\0';
	return 0;
}

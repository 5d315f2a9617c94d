#include "proto/file_kind.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/utf8.h"

enum { TEXT_BYTES = 64 };

/* The last character may be cut at the end of the bytes. */
static bool is_text(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] == 0x7f || (bytes[i] < 0x20 && (bytes[i] < '\t' || bytes[i] > '\r')))
			return false;
	return n >= TEXT_BYTES && utf8_valid(bytes, n) + 3 >= n;
}

enum file_kind file_kind(const void *first, size_t n)
{
	const uint32_t magic = htole32(FILE_KIND_MAGIC);
	const uint8_t *bytes = first;

	if (n >= sizeof(magic) && memcmp(bytes, &magic, sizeof(magic)) == 0)
		return FILE_KIND_TOKENS;
	if (n >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0)
		return FILE_KIND_NUMPY;
	if (n >= 4 && memcmp(bytes, "PK\x03\x04", 4) == 0)
		return FILE_KIND_ZIP;
	if (n >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0)
		return FILE_KIND_ZSTD;
	if (n >= 6 &&
		memcmp(bytes,
			"\xfd"
			"7zXZ",
			6) == 0) /* with the NUL */
		return FILE_KIND_XZ;
	/* a block size, and the first digits of pi, which begin a block */
	if (n >= 7 && memcmp(bytes, "BZh", 3) == 0 && bytes[3] >= '1' && bytes[3] <= '9' &&
		memcmp(bytes + 4, "1AY", 3) == 0)
		return FILE_KIND_BZIP2;
	/* deflate, and no flags that gzip does not define */
	if (n >= 4 && memcmp(bytes, "\x1f\x8b\x08", 3) == 0 && (bytes[3] & 0xe0) == 0)
		return FILE_KIND_GZIP;
	return is_text(bytes, n) ? FILE_KIND_TEXT : FILE_KIND_OTHER;
}

const char *file_kind_name(enum file_kind kind)
{
	static const char *const names[] = {[FILE_KIND_GZIP] = "a gzip file",
		[FILE_KIND_ZSTD] = "a Zstandard file",
		[FILE_KIND_XZ] = "an xz file",
		[FILE_KIND_BZIP2] = "a bzip2 file",
		[FILE_KIND_ZIP] = "a zip file",
		[FILE_KIND_NUMPY] = "a numpy file",
		[FILE_KIND_TEXT] = "text",
		[FILE_KIND_TOKENS] = NULL};

	return names[kind];
}

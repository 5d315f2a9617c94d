#include "proto/file_kind.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

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
	return FILE_KIND_OTHER;
}

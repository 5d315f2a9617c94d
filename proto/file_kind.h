/*
 * file_kind.h: what a file is by its first bytes, where that is sure. gpt2ctl makes no tokens of
 * one that is no text, and the engine trains on none that holds no tokens.
 */
#ifndef GPT2D_PROTO_FILE_KIND_H
#define GPT2D_PROTO_FILE_KIND_H

#include <stddef.h>

/* What llm.c's token files begin with, as a little-endian int32. */
enum { FILE_KIND_MAGIC = 20240520 };

enum file_kind {
	FILE_KIND_OTHER,
	FILE_KIND_GZIP,
	FILE_KIND_ZSTD,
	FILE_KIND_XZ,
	FILE_KIND_BZIP2,
	FILE_KIND_ZIP,
	FILE_KIND_NUMPY,
	FILE_KIND_TOKENS, /* with that magic */
};

enum file_kind file_kind(const void *first, size_t n);

#endif

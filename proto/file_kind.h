/*
 * file_kind.h: recognises a file by its first bytes, if that is certain. gpt2ctl refuses to make
 * tokens of files that are not text, and the engine refuses to train on files without tokens.
 */
#ifndef GPT2D_PROTO_FILE_KIND_H
#define GPT2D_PROTO_FILE_KIND_H

#include <stddef.h>

/* The first number of llm.c's token files, as a little-endian int32. */
enum { FILE_KIND_MAGIC = 20240520 };

enum file_kind {
	FILE_KIND_OTHER,
	FILE_KIND_GZIP,
	FILE_KIND_ZSTD,
	FILE_KIND_XZ,
	FILE_KIND_BZIP2,
	FILE_KIND_ZIP,
	FILE_KIND_NUMPY,
	FILE_KIND_TEXT,   /* 64 bytes or more of UTF-8, without control characters */
	FILE_KIND_TOKENS, /* with that magic */
};

enum file_kind file_kind(const void *first, size_t n);
/* "a gzip file", "text"; NULL: tokens, or not known. */
const char *file_kind_name(enum file_kind kind);

#endif

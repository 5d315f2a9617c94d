/* token_reader.h: reads token files of token_file.h, nanoGPT and llm.c. */
#ifndef GPT2D_CTL_DATA_TOKEN_READER_H
#define GPT2D_CTL_DATA_TOKEN_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/link/ctl_error.h"

struct token_reader {
	const char *path; /* the caller's */
	int fd;
	bool headed;
	int64_t n_tokens, bytes;
};

/* 0, or CTL_USAGE with e: unreadable, not a token file, or its size does not match its header. */
int token_reader_open(struct token_reader *r, const char *path, struct ctl_error *e);
void token_reader_close(struct token_reader *r);

/* Tokens first .. first + n - 1, all below n_tokens: 0, or CTL_USAGE with e. */
int token_reader_read(
	const struct token_reader *r, int64_t first, size_t n, uint16_t *out, struct ctl_error *e);

struct token_summary {
	int32_t largest;       /* id, -1: none */
	int64_t largest_at;    /* the first token with it */
	int64_t distinct;      /* number of different IDs */
	int64_t counts[65536]; /* count of each ID */
	char sha256[65];       /* of the whole file */
};

/* Reads all of the file. 0, CTL_USAGE, or CTL_CANCELLED (a signal), with e. */
int token_reader_summarize(
	const struct token_reader *r, struct token_summary *s, struct ctl_error *e);

#endif

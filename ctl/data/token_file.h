/*
 * token_file.h: writes token files: llm.c's headed format (256 int32, little-endian: magic
 * 20240520, version 1, token count, zeros; then uint16 tokens) or the tokens alone. A file appears
 * whole or not at all: PATH.tmp, locked for one writer, fsync, rename, fsync of the folder.
 */
#ifndef GPT2D_CTL_DATA_TOKEN_FILE_H
#define GPT2D_CTL_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/link/ctl_error.h"

struct token_file {
	char *path, *tmp_path;
	int fd;
	bool headed;
	int64_t n_tokens;
};

enum { TOKEN_FILE_HEADER_BYTES = 256 * 4 };

/*
 * 0, or with e: CTL_USAGE (the folder does not exist, or path is not a regular file), or
 * CTL_TRANSPORT.
 */
int token_file_create(struct token_file *f, const char *path, bool headed, struct ctl_error *e);
int token_file_append(struct token_file *f, const uint16_t *tokens, size_t n, struct ctl_error *e);

/* Move the last n tokens of from to the end of to; both still open. */
int token_file_move_tail(
	struct token_file *from, int64_t n, struct token_file *to, struct ctl_error *e);

/* Write the header, flush it to disk, rename it into place. f is finished in both cases. */
int token_file_commit(struct token_file *f, struct ctl_error *e);
/* Remove the temporary file. Allowed for a file that was never created or is committed. */
void token_file_abandon(struct token_file *f);

#endif

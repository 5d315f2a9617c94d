/*
 * documents.h: inputs, cut into parts that can be encoded separately. A text file is one document,
 * cut where the tokenizer allows it. In a JSON Lines file each line is a document, and parts are
 * whole lines.
 */
#ifndef GPT2D_CTL_DATA_DOCUMENTS_H
#define GPT2D_CTL_DATA_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/data/tokenizer.h"
#include "ctl/link/ctl_error.h"

enum {
	DOCUMENTS_PART_BYTES = 1 << 18,
	DOCUMENTS_PART_BYTES_MAX = 1 << 28, /* of a line, or of text that cannot be cut */
};

struct documents_part {
	unsigned char *bytes; /* the caller's to free; reused by the next call */
	size_t n, room;
	size_t input;      /* number of the input, from 0 */
	const char *name;  /* of the input; valid while the documents are open */
	bool lines;        /* JSON Lines */
	int64_t line;      /* the number of its first line, from 1 */
	int64_t before;    /* documents that began before it */
	int64_t documents; /* documents that begin in it */
	bool begins, ends; /* of text: it begins or ends a document */
};

struct documents;

/*
 * names: n of them, "-" is standard input; they outlive the documents. lines: all are JSON Lines;
 * false: those with names in .jsonl or .ndjson, also with .gz or .zst. limit: maximum of documents,
 * 0: all.
 */
struct documents *documents_open(const char *const *names, size_t n, bool lines, int64_t limit,
	const struct tokenizer_kind *kind);
void documents_close(struct documents *d); /* takes NULL */

/* No input may be one of these files; NULL: none. */
void documents_refuse(struct documents *d, const char *first, const char *second);

/*
 * The next part: 1 and *part, 0 at the end, or CTL_USAGE or CTL_CANCELLED as a negative number with
 * e.
 */
int documents_next(struct documents *d, struct documents_part *part, struct ctl_error *e);

/* Reports a line of JSON Lines, n bytes, that is not a document. */
bool documents_is_empty(const unsigned char *line, size_t n);

/* Bytes read of all inputs, and their size; -1: not known. */
int64_t documents_bytes_read(const struct documents *d);
int64_t documents_bytes_all(const struct documents *d);
/* Bytes of text, unpacked, from an input so far. */
int64_t documents_text_bytes(const struct documents *d, size_t input);
int64_t documents_count(const struct documents *d); /* documents begun so far */

#endif

/* encoder.h: encodes documents on several threads; the tokens keep the order of the documents. */
#ifndef GPT2D_CTL_DATA_ENCODER_H
#define GPT2D_CTL_DATA_ENCODER_H

#include <stddef.h>
#include <stdint.h>

#include "ctl/data/documents.h"
#include "ctl/data/tokenizer.h"

enum { ENCODER_THREADS_MAX = 256 };

/* Tokens of the next part of the documents. */
struct encoder_part {
	const uint16_t *ids;
	size_t n;
	int64_t separators; /* of the n */
	int64_t replaced;   /* U+FFFD for bytes that are not UTF-8 */
	int32_t largest;    /* id, -1: none */
	size_t input;
	int64_t documents; /* documents that begin in it */
};

struct encoder_job {
	const struct tokenizer *tokenizer;
	struct documents *documents;
	const char *field; /* of JSON Lines */
	int threads;       /* 1 to ENCODER_THREADS_MAX */
	/* Called by the thread that called encoder_run. 0, or e's exit status. */
	int (*take)(void *of, const struct encoder_part *part, struct ctl_error *e);
	void *of;
};

/* 0, or an exit status with e: of the documents, of an invalid line, or of take. */
int encoder_run(const struct encoder_job *job, struct ctl_error *e);

/* Processors that this process may use, at most ENCODER_THREADS_MAX. */
int encoder_threads(void);

#endif

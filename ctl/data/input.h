/*
 * input.h: a file or standard input, unpacked while it is read: gzip (zlib) and Zstandard
 * (libzstd), recognised by their first bytes; several members in a row count as one.
 */
#ifndef GPT2D_CTL_DATA_INPUT_H
#define GPT2D_CTL_DATA_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "ctl/link/ctl_error.h"

struct input;

/*
 * name "-": standard input. The first read refuses files that are certainly not text (zip, xz,
 * bzip2, numpy, tokens). 0 and *in, or CTL_USAGE with e.
 */
int input_open(struct input **in, const char *name, struct ctl_error *e);
void input_close(struct input *in); /* takes NULL */

const char *input_name(const struct input *in); /* "stdin" for "-" */
int input_fd(const struct input *in);

/*
 * Reads at least one byte of text, at most room: *n; 0: the end. 0, CTL_USAGE with e (unreadable,
 * or damaged), or CTL_CANCELLED (a signal).
 */
int input_read(struct input *in, unsigned char *out, size_t room, size_t *n, struct ctl_error *e);

int64_t input_bytes_read(const struct input *in); /* of the file so far, before unpacking */

#endif

/*
 * tuning.h: the kernels' choices by timing (kernels.h), kept in a folder between starts of the
 * engine: an engine that finds its file times nothing again, and computes the same bits. There is a
 * file for each GPU model and library version, named after them (and after the version of our own
 * products, if any, as "cuBLASLt 130100, own products 1"):
 *
 *   gpt2d tuning 1
 *   for NVIDIA H200, sm_90, cuBLASLt 130100
 *   choices 1
 *   M N K TRANSPOSE_A TRANSPOSE_B ADD EPILOGUE DTYPE ALIGN*5 PICOSECONDS TIMED ALGORITHM*8
 *   sha256 (of all above)
 *
 * in ascending order, algorithm in hexadecimal. A set of choices has exactly one form; a file with
 * another form is damaged. Rank 0 writes the file; removing it repeats all timings.
 */
#ifndef GPT2D_ENGINE_TRAIN_TUNING_H
#define GPT2D_ENGINE_TRAIN_TUNING_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { TUNING_CHOICES_MAX = 4096, TUNING_NAME_BYTES = 128 };

/* The name of the file for these (k_device_info.choices). */
void tuning_name(const char *holds_for, char out[TUNING_NAME_BYTES]);

/* The file's text, malloc'd; sorts choices. NULL without memory. */
char *tuning_text(const char *holds_for, struct k_choice *choices, int64_t n);

/*
 * 0 and *out (malloc'd; n may be 0), or with error: -EINVAL (damaged, or for another device),
 * -ENOMEM.
 */
int tuning_parse(const char *text, size_t bytes, const char *holds_for, struct k_choice **out,
	int64_t *n, char *error, size_t error_bytes);

/* From the file of dir: as tuning_parse; -ENOENT: there is none; other errors of reading it. */
int tuning_read(const char *dir, const char *holds_for, struct k_choice **out, int64_t *n,
	char *error, size_t error_bytes);

/* Whole or not at all; dir is created if its parent exists. 0, or a negative errno with error. */
int tuning_write(
	const char *dir, const char *holds_for, const char *text, char *error, size_t error_bytes);

#endif

/*
 * choices.h: the algorithms of matrix products, saved by one program for the next, so that the next
 * one tries none out.
 */
#ifndef GPT2D_TESTS_GPU_CHOICES_H
#define GPT2D_TESTS_GPU_CHOICES_H

#include "kernels/kernels.h"

/* Applies the file's choices. 1: there is no such file; 0; -1: message on stderr. */
int choices_read(struct k_context *ctx, const char *path);

/* Writes the current ones to a new file. 0; -1: message on stderr. */
int choices_write(const struct k_context *ctx, const char *path);

#endif

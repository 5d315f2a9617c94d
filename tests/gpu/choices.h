/*
 * choices.h: the algorithms that matrix products took, kept from one program to the next, so that
 * the next one tries none out.
 */
#ifndef GPT2D_TESTS_GPU_CHOICES_H
#define GPT2D_TESTS_GPU_CHOICES_H

#include "kernels/kernels.h"

/* Puts those of the file in force. 1: there is no such file; 0; -1: message on stderr. */
int choices_read(struct k_context *ctx, const char *path);

/* Writes those in force to a new file. 0; -1: message on stderr. */
int choices_write(const struct k_context *ctx, const char *path);

#endif

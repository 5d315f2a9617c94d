/*
 * blas.h: OpenBLAS's memory. It maps a buffer for every thread that is inside it at a time, when
 * that many first are, and where the system refuses asks again for ever. So they are all mapped
 * beforehand, or it is not begun.
 */
#ifndef GPT2D_KERNELS_CPU_BLAS_H
#define GPT2D_KERNELS_CPU_BLAS_H

/* Address space of one; pages are taken when they are written. BUFFER_SIZE of 0.3 on x86-64. */
enum { BLAS_BUFFER_MIB = 128 };

/* Buffers for so many threads at a time, kept until the process ends. 0 or -ENOMEM. */
int blas_reserve(int threads);

#endif

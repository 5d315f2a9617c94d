/*
 * blas.h: OpenBLAS's memory. OpenBLAS maps a buffer for every thread that is inside it at the same
 * time, and retries for ever if the system refuses. So all buffers are mapped in advance, or the
 * process does not start.
 */
#ifndef GPT2D_KERNELS_CPU_BLAS_H
#define GPT2D_KERNELS_CPU_BLAS_H

/*
 * Address space of one buffer; pages are allocated when they are written. BUFFER_SIZE of 0.3 on
 * x86-64.
 */
enum { BLAS_BUFFER_MIB = 128 };

/* Buffers for this many threads at a time, kept until the process ends. 0 or -ENOMEM. */
int blas_reserve(int threads);

#endif

/* scratch.h: bytes of a pool's memory per operation. The operation's file defines its function. */
#ifndef GPT2D_KERNELS_CPU_SCRATCH_H
#define GPT2D_KERNELS_CPU_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* For pool_reserve. */
size_t scratch_attention_bytes(int64_t T);
size_t scratch_layernorm_bytes(int64_t C);
/* For pool_shared. */
size_t scratch_layernorm_shared_bytes(int64_t R, int64_t C);

#endif

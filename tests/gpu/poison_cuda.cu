#include <cuda_runtime.h>
#include <stdio.h>

extern "C" {
#include "tests/gpu/poison.h"
}

static __device__ long long times;

static __global__ void strike(long long at, int *nowhere)
{
	if (++times == at)
		*nowhere = 1;
}

/* Reads the launch's error without clearing it: the engine must find it. */
void poison_enqueue(struct k_stream *s, int64_t at)
{
	cudaStream_t stream = (cudaStream_t)k_stream_native(s);
	cudaError_t rc;

	strike<<<1, 1, 0, stream>>>(at, NULL);
	rc = cudaPeekAtLastError();
	if (rc != cudaSuccess)
		fprintf(stderr, "poison: not launched: %s\n", cudaGetErrorString(rc));
}

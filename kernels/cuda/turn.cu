#include "kernels/cuda/turn.cuh"

#include "kernels/cuda/element.cuh"

/* A block turns TURN_ROWS rows of SIDE columns, one square tile at a time. */
enum { SIDE = 64, THREADS = 256, WIDE = 4, ACROSS = SIDE / WIDE, DOWN = THREADS / ACROSS };
enum { BLOCKS = 4 };

static __device__ __forceinline__ void load_tile(float (&x)[SIDE / DOWN][WIDE], const float *in,
	int64_t first, int64_t end, int64_t column, int64_t n)
{
#pragma unroll
	for (int i = 0; i < SIDE / DOWN; i++) {
		int64_t row = first + threadIdx.x / ACROSS + i * DOWN;

#pragma unroll
		for (int j = 0; j < WIDE; j++)
			x[i][j] = 0;
		if (row < end && column < n)
			element_load(x[i], in + row * n + column);
	}
}

static __global__ void __launch_bounds__(THREADS, BLOCKS)
	turn_tiles(float *out, float *partial, const float *in, int64_t R, int64_t n)
{
	__shared__ float tile[SIDE][SIDE + 1];
	int row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * WIDE;
	int to_row = threadIdx.x % SIDE, to_column = threadIdx.x / SIDE;
	int64_t from = (int64_t)blockIdx.x * SIDE, begin = (int64_t)blockIdx.y * TURN_ROWS;
	int64_t end = begin + TURN_ROWS < R ? begin + TURN_ROWS : R;
	float total[WIDE] = {};

	for (int64_t first = begin; first < end; first += SIDE) {
		float x[SIDE / DOWN][WIDE];

		load_tile(x, in, first, end, from + column, n);
		__syncthreads();
#pragma unroll
		for (int i = 0; i < SIDE / DOWN; i++) {
#pragma unroll
			for (int j = 0; j < WIDE; j++) {
				tile[row + i * DOWN][column + j] = x[i][j];
				total[j] += x[i][j];
			}
		}
		__syncthreads();
#pragma unroll
		for (int c = to_column; c < SIDE; c += THREADS / SIDE) {
			if (from + c < n && first + to_row < end)
				out[(from + c) * R + first + to_row] = tile[to_row][c];
		}
	}
	if (!partial)
		return;
	__syncthreads();
#pragma unroll
	for (int j = 0; j < WIDE; j++)
		tile[row][column + j] = total[j];
	__syncthreads();
	if (threadIdx.x < SIDE && from + threadIdx.x < n) {
		float sum = 0;

		for (int i = 0; i < DOWN; i++)
			sum += tile[i][threadIdx.x];
		partial[blockIdx.y * n + from + threadIdx.x] = sum;
	}
}

bool turn_fits(const void *in, int64_t R, int64_t n)
{
	return R > 0 && R % WIDE == 0 && n > 0 && n % WIDE == 0 && element_aligned(in, 16) &&
		turn_parts(R) <= UINT16_MAX;
}

void turn_matrix(
	struct k_stream *s, float *out, float *partial, const float *in, int64_t R, int64_t n)
{
	dim3 grid((unsigned int)((n + SIDE - 1) / SIDE), (unsigned int)turn_parts(R));

	turn_tiles<<<grid, THREADS, 0, s->cuda>>>(out, partial, in, R, n);
	stream_check(s, "turning a matrix");
}

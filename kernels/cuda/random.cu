#include "kernels/cuda/element.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/stream.cuh"

static const uint64_t init_place = UINT64_C(0x696e6974) << 32; /* apart from dropout's offsets */

/*
 * Logarithm, sine and cosine are the polynomials of the CPU library (each within 1e-8 of the
 * function) with explicit roundings: an element has the same bits as on a processor with fused
 * multiply-add.
 */
static __device__ float log_of(float x)
{
	const uint32_t root_half = 0x3f3504f3; /* sqrt(1/2) */
	uint32_t above = __float_as_uint(x) - root_half;
	float k = (float)((int32_t)above >> 23);
	float r = __fsub_rn(__uint_as_float((above & 0x7fffff) + root_half), 1.0f), q;

	q = fmaf(-7.85954401e-2f, r, 1.28816218e-1f);
	q = fmaf(q, r, -1.31287680e-1f);
	q = fmaf(q, r, 1.41811962e-1f);
	q = fmaf(q, r, -1.66245531e-1f);
	q = fmaf(q, r, 2.00022861e-1f);
	q = fmaf(q, r, -2.50008104e-1f);
	q = fmaf(q, r, 3.33333167e-1f);
	q = fmaf(__fmul_rn(q, r), r, __fmul_rn(-0.5f, r));
	q = fmaf(q, r, r);
	return fmaf(k, 0.693147181f, q);
}

static __device__ void sincos_turns(float turns, float *sine, float *cosine)
{
	float v = __fmul_rn(turns, 4.0f);
	int32_t quarter = (int32_t)__fadd_rn(v, 0.5f);
	float f = __fsub_rn(v, (float)quarter), s2 = __fmul_rn(f, f), sn, cs;
	uint32_t a, b;

	sn = fmaf(-4.60217699e-3f, s2, 7.96802281e-2f);
	sn = fmaf(sn, s2, -6.45963479e-1f);
	sn = fmaf(sn, s2, 1.57079632f);
	sn = __fmul_rn(sn, f);
	cs = fmaf(9.03631109e-4f, s2, -2.08600713e-2f);
	cs = fmaf(cs, s2, 2.53669204e-1f);
	cs = fmaf(cs, s2, -1.23370054f);
	cs = fmaf(cs, s2, 1.0f);
	a = __float_as_uint(quarter & 1 ? cs : sn) ^ ((uint32_t)quarter & 2) << 30;
	b = __float_as_uint(quarter & 1 ? sn : cs) ^ ((uint32_t)(quarter + 1) & 2) << 30;
	*sine = __uint_as_float(a);
	*cosine = __uint_as_float(b);
}

/* One pair of elements by Box-Muller from two words. */
static __device__ float2 normal_pair(
	uint32_t radius_word, uint32_t angle_word, float mean, float std)
{
	const float unit = 1.0f / 8388608;
	float u = __fmul_rn(__fadd_rn((float)(int32_t)(radius_word >> 9), 0.5f), unit);
	float turns = __fmul_rn((float)(int32_t)(angle_word >> 8), unit / 2);
	float square = __fmul_rn(-2.0f, log_of(u));
	float radius = __fsqrt_rn(square < 0 ? 0 : square), sine, cosine;

	sincos_turns(turns, &sine, &cosine);
	return make_float2(fmaf(__fmul_rn(radius, cosine), std, mean),
		fmaf(__fmul_rn(radius, sine), std, mean));
}

static __global__ void init_normal(
	float *out, int64_t n, uint64_t seed, uint64_t place, int64_t first, float mean, float std)
{
	int64_t stride = (int64_t)gridDim.x * blockDim.x;
	int64_t blocks = (first + n + 3) / 4;

	for (int64_t b = first / 4 + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b < blocks;
		b += stride) {
		uint4 words = philox_block((uint64_t)b, seed, place);
		float2 low = normal_pair(words.x, words.y, mean, std);
		float2 high = normal_pair(words.z, words.w, mean, std);
		float four[4] = {low.x, low.y, high.x, high.y};

#pragma unroll
		for (int i = 0; i < 4; i++) {
			int64_t at = 4 * b + i - first;

			if (at >= 0 && at < n)
				out[at] = four[i];
		}
	}
}

void k_init_normal(struct k_stream *s, k_real *out, int64_t n, uint64_t seed, uint32_t stream,
	int64_t first, double mean, double std)
{
	if (n <= 0 || !stream_ready(s))
		return;
	init_normal<<<element_blocks(n / 4 + 2, 256, 4096), 256, 0, s->cuda>>>(
		out, n, seed, init_place | stream, first, (float)mean, (float)std);
	stream_check(s, "k_init_normal");
}

#include "kernels/cpu/vec.h"

extern const struct vec vec_table_base;
extern const struct vec vec_table_avx2;
extern const struct vec vec_table_avx512;

#ifdef VEC_HAVE_AVX
static bool runs_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
	return runs_avx2() && __builtin_cpu_supports("avx512f") &&
		__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl");
}
#endif

const struct vec *vec_choose(int index)
{
#ifdef VEC_HAVE_AVX
	if (runs_avx512() && index-- == 0)
		return &vec_table_avx512;
	if (runs_avx2() && index-- == 0)
		return &vec_table_avx2;
#endif
	return index == 0 ? &vec_table_base : NULL;
}

#include "kernels/cpu/vec_isa.h"

#define VEC_TEXT(x)   #x
#define VEC_STRING(x) VEC_TEXT(x)

const struct vec vec_table = {
	.name = VEC_STRING(VEC_ISA),
	.gelu = vec_gelu,
	.gelu_backward = vec_gelu_backward,
	.norm = vec_norm,
	.norm_backward = vec_norm_backward,
	.max = vec_max,
	.exp = vec_exp,
	.exp_sum = vec_exp_sum,
	.softmax_backward = vec_softmax_backward,
	.add = vec_add,
	.mul = vec_mul,
	.scale = vec_scale,
	.dot = vec_dot,
	.squares = vec_squares,
	.adamw = vec_adamw,
	.philox = vec_philox,
	.dropout_mask = vec_dropout_mask,
	.normal = vec_normal,
};

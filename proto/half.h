/* half.h: the 16-bit types of tensors as fp32 and back, rounded to the nearest, ties to even. */
#ifndef GPT2D_PROTO_HALF_H
#define GPT2D_PROTO_HALF_H

#include <stdint.h>

float half_from_f16(uint16_t half);
float half_from_bf16(uint16_t half);
uint16_t half_to_f16(float value); /* 65520 and above: infinity */
uint16_t half_to_bf16(float value);

#endif

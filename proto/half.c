#include "proto/half.h"

#include <string.h>

static float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

float half_from_f16(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000) << 16, mantissa = half & 0x3ff;
	const uint32_t exponent = half >> 10 & 0x1f;
	float value;

	if (exponent == 31)
		return from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent > 0)
		return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
	value = (float)mantissa * 0x1p-24f; /* a subnormal, or 0 */
	return sign ? -value : value;
}

float half_from_bf16(uint16_t half)
{
	return from_bits((uint32_t)half << 16);
}

uint16_t half_to_bf16(float value)
{
	uint32_t bits = to_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40); /* stays a NaN */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* In units of a subnormal's last bit below 2^-14, else of the 11th bit. */
uint16_t half_to_f16(float value)
{
	const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, low = bits & 0x7fffffff;
	uint32_t mantissa, shift, half;

	if (low > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (low >= 0x477ff000) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (low >= 0x38800000) {
		half = low - 0x38000000;
		return (uint16_t)(sign | (half + 0xfff + (half >> 13 & 1)) >> 13);
	}
	if (low < 0x33000000)
		return (uint16_t)sign;
	mantissa = (low & 0x7fffff) | 0x800000;
	shift = 126 - (low >> 23);
	half = mantissa >> shift;
	mantissa &= (1U << shift) - 1;
	if (mantissa > 1U << (shift - 1) || (mantissa == 1U << (shift - 1) && (half & 1)))
		half++;
	return (uint16_t)(sign | half);
}

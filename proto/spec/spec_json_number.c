/* Numbers of spec_json.h: text to value and back, exact, whatever the locale. */
#include "proto/spec/spec_json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exponent behind 'e', cut off where no SPEC_JSON_NUMBER_MAX digits can make up for it. */
static int64_t read_exponent(const char *p)
{
	const int64_t limit = 1000000;
	bool negative = *p == '-';
	int64_t v = 0;

	if (*p == '-' || *p == '+')
		p++;
	for (; *p; p++)
		if (v < limit)
			v = v * 10 + (*p - '0');
	return negative ? -v : v;
}

enum spec_json_integer spec_json_int64(const char *number, int64_t *out)
{
	char digits[SPEC_JSON_NUMBER_MAX + 1];
	bool negative = *number == '-', point = false;
	size_t n = 0;
	int64_t exponent = 0;
	uint64_t v = 0;

	for (const char *p = number + negative; *p; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (*p == 'e' || *p == 'E') {
			exponent += read_exponent(p + 1);
			break;
		}
		exponent -= point;
		if ((n > 0 || *p != '0') && n < SPEC_JSON_NUMBER_MAX)
			digits[n++] = *p;
	}
	while (n > 0 && digits[n - 1] == '0') {
		n--;
		exponent++;
	}
	if (n == 0) {
		*out = 0;
		return SPEC_JSON_WHOLE;
	}
	if (exponent < 0)
		return SPEC_JSON_FRACTION;
	if ((int64_t)n + exponent > 19)
		return SPEC_JSON_TOO_BIG;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)(digits[i] - '0');
	for (; exponent > 0; exponent--)
		v *= 10;
	if (v > (uint64_t)INT64_MAX + negative)
		return SPEC_JSON_TOO_BIG;
	*out = negative ? (int64_t)(0 - v) : (int64_t)v;
	return SPEC_JSON_WHOLE;
}

/* "C" needs no memory and cannot fail in any libc that has newlocale. */
static locale_t c_locale(void)
{
	return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int spec_json_real(const char *number, double *out)
{
	locale_t c = c_locale();
	int saved = errno;
	double v;
	int rc;

	errno = 0;
	v = strtod_l(number, NULL, c);
	rc = errno == ERANGE || !isfinite(v) ? -ERANGE : 0;
	errno = saved;
	freelocale(c);
	if (rc)
		return rc;
	*out = fpclassify(v) == FP_ZERO ? 0 : v;
	return 0;
}

void spec_json_format_real(double value, char out[SPEC_JSON_REAL_BYTES])
{
	locale_t c = c_locale(), before = uselocale(c);

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, SPEC_JSON_REAL_BYTES, "%.*g", digits, value);
		if (memcmp(&(double){strtod(out, NULL)}, &value, sizeof(value)) == 0)
			break;
	}
	uselocale(before);
	freelocale(c);
}

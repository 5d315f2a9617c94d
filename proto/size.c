#include "proto/size.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

char *size_text(int64_t bytes, char out[SIZE_BYTES])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	size_t u = 0;
	int decimals;

	for (; fabs(value) >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		value /= 1000.0;
	decimals = u == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
	snprintf(out, SIZE_BYTES, "%.*f %s", decimals, value, units[u]);
	return out;
}

#include "proto/duration.h"

#include <math.h>
#include <stdio.h>

static const double HOURS_MAX_S = 1e15; /* 30 million years */

char *duration_text(double seconds, char out[DURATION_BYTES])
{
	const long long whole = seconds < HOURS_MAX_S ? llround(seconds) : 0;

	if (seconds >= HOURS_MAX_S)
		snprintf(out, DURATION_BYTES, "%.3g s", seconds);
	else if (whole < 60)
		snprintf(out, DURATION_BYTES, "%lld s", whole);
	else if (whole < 3600)
		snprintf(out, DURATION_BYTES, "%lldm%02llds", whole / 60, whole % 60);
	else
		snprintf(out, DURATION_BYTES, "%lldh%02lldm", whole / 3600, whole % 3600 / 60);
	return out;
}

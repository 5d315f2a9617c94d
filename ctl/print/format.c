#include "ctl/print/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/term.h"
#include "proto/duration.h"
#include "proto/size.h"

static const int64_t EXACT = INT64_C(1) << 53;

/* three significant digits */
static void three_digits(double value, const char *unit, char out[FORMAT_BYTES])
{
	const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;

	snprintf(out, FORMAT_BYTES, "%.*f%s", decimals, value, unit);
}

char *format_si(double value, char out[FORMAT_BYTES])
{
	static const char *const units[] = {"", " k", " M", " G", " T", " P"};
	const size_t n_units = sizeof(units) / sizeof(units[0]);
	double scaled = value;
	size_t u = 0;

	for (; fabs(scaled) >= 999.5 && u < n_units; u++)
		scaled /= 1000.0;
	if (!isfinite(value))
		snprintf(out, FORMAT_BYTES, "-");
	else if (u == n_units)
		snprintf(out, FORMAT_BYTES, "%.3g", value);
	else if (u == 0)
		snprintf(out, FORMAT_BYTES, "%.*f", value == floor(value) || value >= 99.95 ? 0 : 1,
			value);
	else
		three_digits(scaled, units[u], out);
	return out;
}

char *format_count(int64_t value, char out[FORMAT_BYTES])
{
	char digits[24];
	size_t n, used = 0;
	const char *p = digits;

	snprintf(digits, sizeof(digits), "%lld", (long long)value);
	if (*p == '-')
		out[used++] = *p++;
	n = strlen(p);
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && (n - i) % 3 == 0)
			out[used++] = ',';
		out[used++] = p[i];
	}
	out[used] = '\0';
	return out;
}

char *format_size(int64_t bytes, char out[FORMAT_BYTES])
{
	return size_text(bytes, out);
}

char *format_duration(double seconds, char out[FORMAT_BYTES])
{
	if (!isfinite(seconds))
		snprintf(out, FORMAT_BYTES, "-");
	else if (seconds <= 0.0)
		snprintf(out, FORMAT_BYTES, "0 s");
	else if (seconds < 0.9995e-3)
		three_digits(seconds * 1e6, " us", out);
	else if (seconds < 0.9995)
		three_digits(seconds * 1e3, " ms", out);
	else if (seconds < 59.95)
		three_digits(seconds, " s", out);
	else
		duration_text(seconds, out);
	return out;
}

int64_t format_product(int64_t a, int64_t b)
{
	int64_t product;

	if (!__builtin_mul_overflow(a, b, &product))
		return product;
	return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

char *format_time(const char *iso, char out[FORMAT_BYTES])
{
	char clean[FORMAT_BYTES];

	term_clean(iso, clean, sizeof(clean));
	/* "2026-01-08T19:50:57.123Z" without the milliseconds */
	if (strlen(clean) >= 20 && clean[10] == 'T')
		snprintf(out, FORMAT_BYTES, "%.10s %.8sZ", clean, clean + 11);
	else
		snprintf(out, FORMAT_BYTES, "%s", clean);
	return out;
}

int format_percent(double fraction)
{
	if (!(fraction > 0.0)) /* also false for NaN */
		return 0;
	return fraction < 1.0 ? (int)(fraction * 100.0) : 100;
}

char *format_loss(double loss, char out[FORMAT_BYTES])
{
	const double size = fabs(loss);

	if (!isfinite(loss))
		snprintf(out, FORMAT_BYTES, "-");
	else
		snprintf(out, FORMAT_BYTES, size >= 0.1 && size < 1e6 ? "%.4f" : "%.4g", loss);
	return out;
}

char *format_p(double p, char out[FORMAT_BYTES])
{
	char digits[FORMAT_BYTES];

	if (!isfinite(p)) {
		snprintf(out, FORMAT_BYTES, "-");
	} else if (p < 0.0001) {
		snprintf(out, FORMAT_BYTES, "<.0001");
	} else {
		snprintf(digits, sizeof(digits), "%.4f", p);
		snprintf(out, FORMAT_BYTES, "%s", digits + (p < 0.99995));
	}
	return out;
}

/* Avoids "-0.00". */
static double rounded(double percent)
{
	return fabs(percent) < 0.005 ? 0.0 : percent;
}

char *format_signed(double percent, char out[FORMAT_BYTES])
{
	if (isfinite(percent))
		snprintf(out, FORMAT_BYTES, "%+.2f%%", rounded(percent));
	else
		snprintf(out, FORMAT_BYTES, "-");
	return out;
}

char *format_interval(double low, double high, char out[FORMAT_BYTES])
{
	if (isfinite(low) && isfinite(high))
		snprintf(out, FORMAT_BYTES, "[%+.2f, %+.2f]", rounded(low), rounded(high));
	else
		snprintf(out, FORMAT_BYTES, "no interval");
	return out;
}

const char *format_string(
	const json_t *object, const char *key, const char *otherwise, char *out, size_t out_bytes)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value))
		snprintf(out, out_bytes, "%lld", (long long)json_integer_value(value));
	else if (json_is_string(value) && json_string_length(value) > 0)
		term_clean(json_string_value(value), out, out_bytes);
	else
		snprintf(out, out_bytes, "%s", otherwise);
	return out;
}

int64_t format_int(const json_t *object, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(object, key);
	const int64_t n = json_integer_value(value);

	return json_is_integer(value) && n >= -EXACT && n <= EXACT ? n : otherwise;
}

double format_real(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

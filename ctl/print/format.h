/*
 * format.h: numbers and objects as text for people. Each function writes into the caller's buffer
 * and returns it. Units are decimal (1 GB = 1e9 bytes).
 */
#ifndef GPT2D_CTL_PRINT_FORMAT_H
#define GPT2D_CTL_PRINT_FORMAT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { FORMAT_BYTES = 48 };

/* "12.3 k", "1.84 M", "1e+18": three digits; unchanged below 1000. */
char *format_si(double value, char out[FORMAT_BYTES]);
/* "1234567" as "1,234,567". */
char *format_count(int64_t value, char out[FORMAT_BYTES]);
/* "40.0 MB" */
char *format_size(int64_t bytes, char out[FORMAT_BYTES]);
/* "5.31 ms", "12.4 s", "2m03s", "1h02m" */
char *format_duration(double seconds, char out[FORMAT_BYTES]);
/* "2026-01-31 12:00:03Z" of an ISO timestamp */
char *format_time(const char *iso, char out[FORMAT_BYTES]);
/* 37 of 0.378; always 0 to 100 */
int format_percent(double fraction);
/* "+4.49%" of a percentage */
char *format_signed(double percent, char out[FORMAT_BYTES]);
/* "[+4.34, +4.65]" of percentages */
char *format_interval(double low, double high, char out[FORMAT_BYTES]);
/* ".0078" of a probability */
char *format_p(double p, char out[FORMAT_BYTES]);
/* "4.2978"; four significant digits if it is small or large */
char *format_loss(double loss, char out[FORMAT_BYTES]);

/* ---- values from a daemon: they may be missing or of the wrong type ---- */

/* A string with control characters replaced; an integer as text; otherwise if it is neither. */
const char *format_string(
	const json_t *object, const char *key, const char *otherwise, char *out, size_t out_bytes);
/* An integer within +-2^53, which every JSON reader keeps exactly; else otherwise. */
int64_t format_int(const json_t *object, const char *key, int64_t otherwise);
/* a * b; the largest or the least number there is where it is beyond: no daemon means that. */
int64_t format_product(int64_t a, int64_t b);
/* A number, or NaN. */
double format_real(const json_t *object, const char *key);

#endif

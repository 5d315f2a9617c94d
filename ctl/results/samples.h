/*
 * samples.h: reads results of any program from its files: one number per run. The formats are lines
 * of numbers, a column of a CSV file, a member of JSON (one document or one per line), the export
 * of hyperfine, and logs in which a pattern finds the number of each step.
 */
#ifndef GPT2D_CTL_RESULTS_SAMPLES_H
#define GPT2D_CTL_RESULTS_SAMPLES_H

#include <stddef.h>

enum { SAMPLES_MAX = 100000, SAMPLES_FILE_BYTES_MAX = 256 << 20 };

struct samples {
	double *values;
	size_t n;
};

struct samples_options {
	/* POSIX extended; its first group is the number, and a file is one run. NULL: not a log */
	const char *pattern;
	size_t drop; /* steps of a log that are not in its mean */
};

/*
 * Appends the values of name, FILE or FILE:COLUMN or FILE:MEMBER.MEMBER; all are finite and above
 * 0.
 * 0, or a negative errno with error ("file:line: ...").
 */
int samples_read(struct samples *s, const char *name, const struct samples_options *options,
	char *error, size_t error_bytes);
void samples_finish(struct samples *s);

#endif

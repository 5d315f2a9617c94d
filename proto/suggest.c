#include "proto/suggest.h"

#include <stdbool.h>
#include <string.h>

enum { PREFIX_MIN = 3 }; /* with fewer letters too many names match */

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

size_t suggest_distance(const char *a, const char *b)
{
	size_t row[3][SUGGEST_WORD_MAX + 1] = {{0}};
	size_t n = strnlen(a, SUGGEST_WORD_MAX + 1), m = strnlen(b, SUGGEST_WORD_MAX + 1);
	size_t i, j;

	if (n > SUGGEST_WORD_MAX || m > SUGGEST_WORD_MAX)
		return SUGGEST_WORD_MAX + 1;
	for (j = 0; j <= m; j++)
		row[0][j] = j;
	for (i = 1; i <= n; i++) {
		size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

		now[0] = i;
		for (j = 1; j <= m; j++) {
			size_t differ = lower(a[i - 1]) != lower(b[j - 1]);

			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + differ);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
				lower(a[i - 2]) == lower(b[j - 1]) && before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
	}
	return row[n % 3][m];
}

static bool begins(const char *name, const char *word, size_t letters)
{
	for (size_t i = 0; i < letters; i++) {
		if (lower(name[i]) != lower(word[i]))
			return false;
	}
	return true;
}

const char *suggest_nearest(const char *word, const char *const *names, size_t n)
{
	size_t letters = strnlen(word, SUGGEST_WORD_MAX + 1);
	size_t limit = letters / 3 > 1 ? letters / 3 : 1;
	size_t best = limit + 1;
	const char *nearest = NULL;

	if (letters == 0 || letters > SUGGEST_WORD_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t d = suggest_distance(word, names[i]);

		if (d < best) {
			best = d;
			nearest = names[i];
		}
	}
	for (size_t i = 0; i < n && best > 1 && letters >= PREFIX_MIN; i++) {
		if (begins(names[i], word, letters))
			return names[i];
	}
	return nearest;
}

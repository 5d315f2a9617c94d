/*
 * suggest.h: the nearest of a list of names, for "did you mean". Pure.
 */
#ifndef GPT2D_SUGGEST_H
#define GPT2D_SUGGEST_H

#include <stddef.h>

enum {
	SUGGEST_WORD_MAX = 64
}; /* longer words have no suggestion: the cost is the product of lengths */

/*
 * Edit distance of two words: insertions, deletions, replacements and swaps of neighbours (optimal
 * string alignment), case ignored. SUGGEST_WORD_MAX + 1 when either is longer than
 * SUGGEST_WORD_MAX.
 */
size_t suggest_distance(const char *a, const char *b);

/*
 * The nearest name, the first of equals, within a third of the word's letters, at least 1; else the
 * first name that begins with the word, from 3 letters on; else NULL.
 */
const char *suggest_nearest(const char *word, const char *const *names, size_t n);

#endif

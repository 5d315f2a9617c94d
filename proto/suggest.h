/*
 * suggest.h: the nearest of a list of names, for "did you mean". Pure.
 */
#ifndef GPT2D_PROTO_SUGGEST_H
#define GPT2D_PROTO_SUGGEST_H

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
 * A name that is one edit away; else the first that begins with the word, from 3 letters on; else
 * the nearest, the first of equals, within a third of the word's letters; else NULL.
 */
const char *suggest_nearest(const char *word, const char *const *names, size_t n);

#endif

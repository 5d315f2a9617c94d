/*
 * suggest.h: the nearest of a list of names, for "did you mean". Pure.
 */
#ifndef GPT2D_PROTO_SUGGEST_H
#define GPT2D_PROTO_SUGGEST_H

#include <stddef.h>

enum {
	SUGGEST_WORD_MAX = 64
}; /* longer words have no suggestion, because the cost is the product of lengths */

/*
 * Edit distance of two words: insertions, deletions, replacements and swaps of neighbours (optimal
 * string alignment), ignoring case. SUGGEST_WORD_MAX + 1 if either is longer than SUGGEST_WORD_MAX.
 */
size_t suggest_distance(const char *a, const char *b);

/*
 * A name that is one edit away; else the first that begins with the word, from 3 letters on; else
 * the nearest, the first if equal, within a third of the word's letters; else NULL.
 */
const char *suggest_nearest(const char *word, const char *const *names, size_t n);

#endif

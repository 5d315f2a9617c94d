/*
 * utf8.h: bytes as UTF-8. Invalid bytes are replaced as in Python's decode("utf-8",
 * errors="replace"): one U+FFFD for each longest beginning of a character, or for the byte (Unicode
 * 15, section 3.9, "maximal subpart").
 */
#ifndef GPT2D_PROTO_UTF8_H
#define GPT2D_PROTO_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at s (1 to 4); 0: it is none, or longer than left. */
size_t utf8_character(const char *s, size_t left);
/* How many of the first n bytes are complete characters. */
size_t utf8_valid(const unsigned char *bytes, size_t n);

/*
 * Writes the text to out, which has room for 3 * n bytes, and returns its length. *replaced: number
 * of U+FFFD that replaced bytes.
 */
size_t utf8_replace(const unsigned char *bytes, size_t n, unsigned char *out, int64_t *replaced);

#endif

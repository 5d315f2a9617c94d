/*
 * json_line.h: the text of a document in JSON Lines: a string member of the object in a line, read
 * as Python reads it with errors="replace". Bytes that are not UTF-8 and halves of surrogate pairs
 * become U+FFFD.
 */
#ifndef GPT2D_CTL_DATA_JSON_LINE_H
#define GPT2D_CTL_DATA_JSON_LINE_H

#include <jansson.h>
#include <stddef.h>

/* The result, and memory for the next line; zeroed at first. */
struct json_line {
	const unsigned char *text; /* valid until the next call */
	size_t n;
	int64_t replaced; /* U+FFFD in the line for bytes that are not UTF-8 */
	json_t *root;
	unsigned char *clean;
	size_t room;
};

/* 0 and j->text, or -EINVAL with error: the cause, and the members of the line. */
int json_line_read(struct json_line *j, const unsigned char *line, size_t n, const char *field,
	char *error, size_t error_bytes);
void json_line_finish(struct json_line *j);

#endif

/*
 * frame.h: lines from a byte stream, of limited length. Knows no JSON and does no I/O: the owner
 * puts bytes in and takes lines out, however the reads split them.
 */
#ifndef GPT2D_PROTO_FRAME_H
#define GPT2D_PROTO_FRAME_H

#include <stddef.h>

struct frame; /* a reader's buffer */

enum frame_status {
	FRAME_LINE,     /* *line (NUL-terminated, without the newline, valid until the next call) */
	FRAME_MORE,     /* no whole line is buffered */
	FRAME_TOO_LONG, /* the line is longer than line_max; reading cannot continue */
	FRAME_BAD,      /* a NUL byte inside a line; reading cannot continue */
};

struct frame *frame_create(size_t line_max);
void frame_destroy(struct frame *f); /* takes NULL */

/* Append n bytes. Never holds more than line_max plus one read. */
void frame_feed(struct frame *f, const void *bytes, size_t n);
enum frame_status frame_next(struct frame *f, char **line, size_t *n);

/* Bytes of a line that has not ended (half a frame at EOF). */
size_t frame_pending(const struct frame *f);

#endif

/*
 * frame.h: lines out of a byte stream, bounded. Knows no JSON and does no I/O: the owner reads
 * bytes into it and takes lines out, so a frame that came in pieces, or several in one read, are
 * the same thing.
 */
#ifndef GPT2D_PROTO_FRAME_H
#define GPT2D_PROTO_FRAME_H

#include <stddef.h>

struct frame; /* a reader's buffer */

enum frame_status {
	FRAME_LINE,     /* *line (NUL-terminated, without the newline, valid until the next call) */
	FRAME_MORE,     /* no whole line is buffered */
	FRAME_TOO_LONG, /* the line passed line_max; the stream cannot be read on */
	FRAME_BAD,      /* a NUL byte inside a line; the stream cannot be read on */
};

struct frame *frame_create(size_t line_max);
void frame_destroy(struct frame *f); /* takes NULL */

/* Append n bytes. Never holds more than line_max plus one read. */
void frame_feed(struct frame *f, const void *bytes, size_t n);
enum frame_status frame_next(struct frame *f, char **line, size_t *n);

/* Bytes of a line that has not ended (half a frame at EOF). */
size_t frame_pending(const struct frame *f);

#endif

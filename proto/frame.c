#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"

enum {
	FIRST_BYTES = 4096,
	KEPT_BYTES = 64 << 10, /* an empty buffer larger than this is freed */
};

struct frame {
	char *bytes;
	size_t start;   /* start of the current line */
	size_t scanned; /* no newline and no NUL between start and here */
	size_t end;     /* end of the data */
	size_t size;    /* allocated */
	size_t line_max;
	enum frame_status broken; /* FRAME_LINE while the stream is valid */
};

struct frame *frame_create(size_t line_max)
{
	struct frame *f = memory_zeroed(1, sizeof(*f));

	f->line_max = line_max;
	f->broken = FRAME_LINE;
	return f;
}

void frame_destroy(struct frame *f)
{
	if (f == NULL)
		return;
	free(f->bytes);
	free(f);
}

/*
 * Room for n more bytes. Taken lines are moved out only if room is short, and the size doubles, so
 * a byte is moved a constant number of times for any split of the stream.
 */
static void make_room(struct frame *f, size_t n)
{
	const size_t used = f->end - f->start;

	if (n <= f->size - f->end)
		return;
	if (f->start < used || n > f->size - used) {
		f->size = f->size ? f->size : FIRST_BYTES;
		while (f->size < f->end + n)
			f->size *= 2;
		f->bytes = memory_resized(f->bytes, f->size);
	}
	memmove(f->bytes, f->bytes + f->start, used);
	f->scanned -= f->start;
	f->end = used;
	f->start = 0;
}

static void give_back(struct frame *f)
{
	f->start = f->scanned = f->end = 0;
	if (f->size <= KEPT_BYTES)
		return;
	free(f->bytes);
	f->bytes = NULL;
	f->size = 0;
}

void frame_feed(struct frame *f, const void *bytes, size_t n)
{
	if (n == 0 || f->broken != FRAME_LINE)
		return;
	if (f->start == f->end)
		give_back(f);
	make_room(f, n);
	memcpy(f->bytes + f->end, bytes, n);
	f->end += n;
}

static enum frame_status broken(struct frame *f, enum frame_status why)
{
	f->broken = why;
	f->start = f->end;
	give_back(f);
	return why;
}

enum frame_status frame_next(struct frame *f, char **line, size_t *n)
{
	size_t fresh, length;
	char *from, *newline;

	if (f->broken != FRAME_LINE)
		return f->broken;
	if (f->start == f->end)
		return FRAME_MORE;
	from = f->bytes + f->scanned;
	fresh = f->end - f->scanned;
	newline = memchr(from, '\n', fresh);
	length = (newline ? (size_t)(newline - f->bytes) : f->end) - f->start;
	if (length > f->line_max)
		return broken(f, FRAME_TOO_LONG);
	if (memchr(from, '\0', newline ? (size_t)(newline - from) : fresh) != NULL)
		return broken(f, FRAME_BAD);
	if (newline == NULL) {
		f->scanned = f->end;
		return FRAME_MORE;
	}
	*newline = '\0';
	*line = f->bytes + f->start;
	*n = length;
	f->start += length + 1;
	f->scanned = f->start;
	return FRAME_LINE;
}

size_t frame_pending(const struct frame *f)
{
	return f->end - f->start;
}

/*
 * Frame: however a stream is cut into reads, the same lines come out of it, and never more is held
 * than the bound that was asked for.
 *
 * Input: a byte of bound, a byte of cut, then the stream.
 */
#include "proto/frame.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

/* Every line, with what ended the stream, as one text. */
struct heard {
	char *text;
	size_t n;
	enum frame_status last;
};

static void hear(struct heard *h, const char *line, size_t n)
{
	FUZZ_MUST(line[n] == '\0' && strlen(line) == n);
	h->text = realloc(h->text, h->n + n + 1);
	FUZZ_MUST(h->text != NULL);
	memcpy(h->text + h->n, line, n);
	h->n += n;
	h->text[h->n++] = '\n';
}

static struct heard listen_to(const uint8_t *bytes, size_t n, size_t line_max, size_t cut)
{
	struct frame *frame = frame_create(line_max);
	struct heard h = {.last = FRAME_MORE};
	char *line = NULL;
	size_t length = 0;

	FUZZ_MUST(frame != NULL);
	while (n > 0 && h.last == FRAME_MORE) {
		size_t piece = n < cut ? n : cut;

		frame_feed(frame, bytes, piece);
		bytes += piece;
		n -= piece;
		while ((h.last = frame_next(frame, &line, &length)) == FRAME_LINE) {
			FUZZ_MUST(length <= line_max);
			hear(&h, line, length);
		}
		FUZZ_MUST(h.last != FRAME_MORE || frame_pending(frame) <= line_max);
	}
	frame_destroy(frame);
	return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct heard whole, cut;
	size_t line_max;

	if (size < 2)
		return 0;
	line_max = 1 + (size_t)data[0] * 4;
	whole = listen_to(data + 2, size - 2, line_max, size);
	cut = listen_to(data + 2, size - 2, line_max, 1 + data[1]);
	/* which of two faults is met first depends on the cut, that there is one does not */
	FUZZ_MUST((whole.last == FRAME_MORE) == (cut.last == FRAME_MORE));
	FUZZ_MUST(whole.n == cut.n && (cut.n == 0 || memcmp(whole.text, cut.text, cut.n) == 0));
	free(whole.text);
	free(cut.text);
	return 0;
}

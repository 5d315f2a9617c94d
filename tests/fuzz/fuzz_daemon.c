/*
 * Daemon: everything that its clients and its engines can say to it, in any order. An input is a
 * script of lines, the first character says who:
 *
 *   c d    client 0, client 1 sends the rest and a newline      C D    hangs up
 *   p q    client 0, client 1 sends the rest without a newline
 *   0 1 k  rank 0, rank 1, the checker says the rest
 *   x y z  their process is killed     X Y Z  closes its link
 */
#include <string.h>

#include "daemon/daemon.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house.h"
#include "tests/fuzz/links.h"

enum { LINES_MAX = 64 };

static int number_of(const char *names, char name)
{
	const char *at = name != '\0' ? strchr(names, name) : NULL;

	return at ? (int)(at - names) : -1;
}

/* line has room for one more character. */
static void act(struct house *h, char *line, size_t n)
{
	static const int engines[] = {0, 1, LINKS_CHECKER};
	int who;

	if ((who = number_of("cd", line[0])) >= 0) {
		line[n] = '\n';
		house_hear(h, who, line + 1, n);
	} else if ((who = number_of("pq", line[0])) >= 0) {
		house_hear(h, who, line + 1, n - 1);
	} else if ((who = number_of("CD", line[0])) >= 0) {
		house_hang_up(h, who);
	} else if ((who = number_of("01k", line[0])) >= 0) {
		links_say(engines[who], line + 1, n - 1);
	} else if ((who = number_of("xyz", line[0])) >= 0) {
		links_end(engines[who], true);
	} else if ((who = number_of("XYZ", line[0])) >= 0) {
		links_close(engines[who]);
	}
	house_settle(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct house *h;
	char *text, *at, *newline;

	text = malloc(size + 1);
	FUZZ_MUST(text != NULL);
	memcpy(text, data, size);
	text[size] = '\n';
	FUZZ_MUST(house_open(&h) == 0);
	at = text;
	for (int i = 0; i < LINES_MAX && at < text + size; i++) {
		newline = memchr(at, '\n', (size_t)(text + size + 1 - at));
		if (newline > at)
			act(h, at, (size_t)(newline - at));
		at = newline + 1;
	}
	house_close(h);
	house_clear();
	free(text);
	return 0;
}

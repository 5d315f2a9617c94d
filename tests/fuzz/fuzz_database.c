/*
 * Database: bytes of it, or of its log, are others than gpt2d wrote, or are missing. gpt2d starts
 * or says why not; what it cannot read it says so of, and it goes on.
 *
 * Input: a byte of choice, 3 bytes of length (when the choice asks to cut the file there), then
 * four bytes for each byte that is written over: where (3) and what.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house.h"
#include "tests/fuzz/state.h"

enum { KILLED = 1, LOG = 2, CUT = 4 };

static size_t number(const uint8_t *at)
{
	return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct state_copy *whole;
	struct state_copy files[STATE_FILES], *file;
	uint8_t *bytes;

	if (size < 4)
		return 0;
	whole = data[0] & KILLED ? state_of_killed() : state_of_stopped();
	memcpy(files, whole, sizeof(files));
	file = &files[(data[0] & KILLED) && (data[0] & LOG) ? STATE_WAL : STATE_DB];
	bytes = malloc(file->n);
	FUZZ_MUST(bytes != NULL);
	memcpy(bytes, file->bytes, file->n);
	file->bytes = bytes;
	for (size_t i = 4; i + 4 <= size; i += 4)
		bytes[number(data + i) % file->n] = data[i + 3];
	if (data[0] & CUT)
		file->n = number(data + 1) % file->n;
	state_put(files);
	state_ask();
	house_clear();
	free(bytes);
	return 0;
}

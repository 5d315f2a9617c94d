/*
 * What gpt2ctl data reads. The first byte chooses: a vocabulary file, which is refused by its name
 * or encodes any text so that its tokens are that text again; a line of JSON Lines, which is
 * refused or gives UTF-8; a packed file, which is refused or ends.
 */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctl/data/bpe.h"
#include "ctl/data/input.h"
#include "ctl/data/json_line.h"
#include "proto/utf8.h"
#include "ctl/data/vocabulary.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT_BYTES = 200, UNPACKED_BYTES_MAX = 1 << 20 };

static int file_of(const uint8_t *data, size_t size, char path[64])
{
	const int fd = memfd_create("input", MFD_CLOEXEC);

	FUZZ_MUST(fd >= 0);
	FUZZ_MUST(write(fd, data, size) == (ssize_t)size);
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

/* The end of the file is the text, in pieces that both ways to merge take. */
static void encode(const struct bpe *bpe, const uint8_t *data, size_t size)
{
	const uint8_t *text = size > TEXT_BYTES ? data + size - TEXT_BYTES : data;
	const size_t n = size > TEXT_BYTES ? TEXT_BYTES : size;
	struct bpe_scratch scratch = {0};
	uint16_t ids[TEXT_BYTES];

	for (size_t length = 1; length <= n; length += length < 10 ? 1 : 47) {
		const size_t k = bpe_encode(bpe, &scratch, text, length, ids);
		size_t at = 0;

		FUZZ_MUST(k >= 1 && k <= length);
		for (size_t i = 0; i < k; i++) {
			size_t bytes;
			const unsigned char *token = bpe_bytes(bpe, ids[i], &bytes);

			FUZZ_MUST(token && at + bytes <= length &&
				memcmp(token, text + at, bytes) == 0);
			at += bytes;
		}
		FUZZ_MUST(at == length);
	}
	bpe_scratch_finish(&scratch);
}

static void read_vocabulary(const uint8_t *data, size_t size)
{
	struct vocabulary v;
	struct ctl_error e = {0};
	char path[64];
	const int fd = file_of(data, size, path);

	if (vocabulary_load(&v, path, &e) == 0) {
		FUZZ_MUST(v.separator >= 0 && v.separator < v.size && v.size <= 65536);
		encode(v.bpe, data, size);
		vocabulary_finish(&v);
	} else {
		FUZZ_MUST(strstr(e.message, "/proc/self/fd/") != NULL);
	}
	close(fd);
}

static void read_line(const uint8_t *data, size_t size)
{
	struct json_line j = {0};
	char error[512] = "";

	if (json_line_read(&j, data, size, "text", error, sizeof(error)) == 0)
		FUZZ_MUST(utf8_valid(j.text, j.n) == j.n);
	else
		FUZZ_MUST(error[0] != '\0');
	json_line_finish(&j);
}

static void read_packed(const uint8_t *data, size_t size)
{
	struct input *in;
	struct ctl_error e = {0};
	unsigned char text[777];
	char path[64];
	const int fd = file_of(data, size, path);
	size_t n = 1, all = 0;

	FUZZ_MUST(input_open(&in, path, &e) == 0);
	while (n > 0 && all < UNPACKED_BYTES_MAX) {
		if (input_read(in, text, sizeof(text), &n, &e) != 0) {
			FUZZ_MUST(strstr(e.message, path) != NULL);
			break;
		}
		FUZZ_MUST(n <= sizeof(text));
		all += n;
	}
	input_close(in);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	switch (data[0]) {
	case 'v':
		read_vocabulary(data + 1, size - 1);
		break;
	case 'l':
		read_line(data + 1, size - 1);
		break;
	default:
		read_packed(data + 1, size - 1);
	}
	return 0;
}

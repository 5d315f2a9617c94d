/*
 * Data: a token file of any content is opened or refused by its name; of one that was opened and
 * scanned, every token that is read is in the vocabulary.
 *
 * Input: sequence length, micro-batch and vocabulary (a byte each), an 0/1 byte that asks for the
 * header of the format before the rest, then the file.
 */
#include <endian.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/data/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 2, LENGTH_MAX = 16, HEADER = 1024 };

static void write_all(int fd, const void *bytes, size_t n)
{
	FUZZ_MUST(write(fd, bytes, n) == (ssize_t)n);
}

static void write_file(int fd, const uint8_t *data, size_t size, bool header)
{
	uint32_t head[HEADER / 4] = {htole32(20240520), htole32(1), htole32((uint32_t)size / 2)};

	if (header)
		write_all(fd, head, sizeof(head));
	write_all(fd, data, size);
}

static void read_all(const struct dataset *d, bool scanned)
{
	int32_t inputs[ROWS * LENGTH_MAX], targets[ROWS * LENGTH_MAX];
	char error[512] = "";
	int64_t samples = d->n_sequences < 64 ? d->n_sequences : 64;

	for (int64_t i = 0; i < samples; i++) {
		int rc = dataset_read(d, i, ROWS, inputs, targets, error, sizeof(error));

		FUZZ_MUST(rc == 0 || (!scanned && strstr(error, d->path) != NULL));
		FUZZ_MUST(dataset_sequence(d, i) >= 0 && dataset_sequence(d, i) < d->n_sequences);
		for (int64_t t = 0; rc == 0 && t < ROWS * d->seq_len; t++)
			FUZZ_MUST(inputs[t] >= 0 && inputs[t] < d->vocab && targets[t] >= 0 &&
				targets[t] < d->vocab);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct spec_config config;
	struct dataset d;
	char error[512] = "";
	int fd, rc;

	if (size < 4)
		return 0;
	fd = memfd_create("tokens", MFD_CLOEXEC);
	FUZZ_MUST(fd >= 0);
	write_file(fd, data + 4, size - 4, data[3] & 1);
	config.data_kind = SPEC_DATA_FILE;
	snprintf(config.data_train, sizeof(config.data_train), "/proc/self/fd/%d", fd);
	snprintf(config.data_val, sizeof(config.data_val), "/proc/self/fd/%d", fd);
	config.seq_len = 1 + data[0] % LENGTH_MAX;
	config.gpus = 1;
	config.micro_batch = 1 + data[1] % 4;
	config.model.vocab_size = 1 + (int64_t)data[2] * 256;
	rc = dataset_open(&d, &config, data[3] & 2, error, sizeof(error));
	if (rc == 0) {
		FUZZ_MUST(d.n_tokens >= dataset_tokens_needed(&config));
		FUZZ_MUST(d.n_sequences >= 1 && d.n_sequences <= (d.n_tokens - 1) / d.seq_len);
		rc = dataset_scan(&d, NULL, error, sizeof(error));
		FUZZ_MUST(rc == 0 || strstr(error, config.data_train) != NULL);
		read_all(&d, rc == 0);
		dataset_close(&d);
	} else {
		FUZZ_MUST(strstr(error, config.data_train) != NULL);
	}
	close(fd);
	return 0;
}

#include "engine/train/tuning.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/artifact.h"

static const char first_line[] = "gpt2d tuning 1\n";

/* LINE_NUMBERS decimal ones of at most 20 characters, then the algorithm's of 16 */
enum { ALIGNS = 5, LINE_NUMBERS = 15, LINE_BYTES = LINE_NUMBERS * 21 + K_ALGORITHM_WORDS * 17 + 1 };
enum { HEAD_BYTES = 512, TAIL_BYTES = 80, FILE_MAX = 2 << 20 };

void tuning_name(const char *holds_for, char out[TUNING_NAME_BYTES])
{
	const char end[] = ".tuning";
	size_t n = 0;

	for (const char *c = holds_for; *c && n < TUNING_NAME_BYTES - sizeof(end); c++) {
		if (isascii((unsigned char)*c) && (isalnum((unsigned char)*c) || *c == '_'))
			out[n++] = (char)tolower((unsigned char)*c);
		else if (n > 0 && out[n - 1] != '-')
			out[n++] = '-';
	}
	memcpy(out + n, end, sizeof(end));
}

/* ---- numbers of a choice, in the order of the file ---- */

static void numbers_of(const struct k_choice *c, int64_t out[LINE_NUMBERS])
{
	const struct k_product *p = &c->product;
	const int64_t numbers[LINE_NUMBERS] = {p->m, p->n, p->k, p->transpose_a, p->transpose_b,
		p->add, p->epilogue, p->dtype, p->align[0], p->align[1], p->align[2], p->align[3],
		p->align[4], c->picoseconds, c->timed};

	memcpy(out, numbers, sizeof(numbers));
}

/* Truncates values that do not fit; the text then differs when it is written again. */
static void from_numbers(const int64_t in[LINE_NUMBERS], struct k_choice *c)
{
	struct k_product *p = &c->product;

	p->m = in[0];
	p->n = in[1];
	p->k = in[2];
	p->transpose_a = (int32_t)in[3];
	p->transpose_b = (int32_t)in[4];
	p->add = (int32_t)in[5];
	p->epilogue = (int32_t)in[6];
	p->dtype = (int32_t)in[7];
	for (int i = 0; i < ALIGNS; i++)
		p->align[i] = (uint32_t)in[8 + i];
	c->picoseconds = in[13];
	c->timed = in[14];
}

static int compare(const void *a, const void *b)
{
	int64_t x[LINE_NUMBERS], y[LINE_NUMBERS];

	numbers_of(a, x);
	numbers_of(b, y);
	for (int i = 0; i < LINE_NUMBERS; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return 0;
}

/* ---- text ---- */

static size_t put_choice(char *to, const struct k_choice *c)
{
	int64_t numbers[LINE_NUMBERS];
	size_t n = 0;

	numbers_of(c, numbers);
	for (int i = 0; i < LINE_NUMBERS; i++)
		n += (size_t)sprintf(to + n, "%" PRId64 " ", numbers[i]);
	for (int i = 0; i < K_ALGORITHM_WORDS; i++)
		n += (size_t)sprintf(to + n, "%" PRIx64 "%c", c->algorithm[i],
			i + 1 < K_ALGORITHM_WORDS ? ' ' : '\n');
	return n;
}

char *tuning_text(const char *holds_for, struct k_choice *choices, int64_t n)
{
	char *text = malloc(HEAD_BYTES + strlen(holds_for) + (size_t)n * LINE_BYTES + TAIL_BYTES);
	char sha256[65];
	size_t at;

	if (!text)
		return NULL;
	if (n > 0)
		qsort(choices, (size_t)n, sizeof(*choices), compare);
	at = (size_t)sprintf(text, "%sfor %s\nchoices %" PRId64 "\n", first_line, holds_for, n);
	for (int64_t i = 0; i < n; i++)
		at += put_choice(text + at, &choices[i]);
	if (artifact_sha256(text, at, sha256)) {
		free(text);
		return NULL;
	}
	sprintf(text + at, "sha256 %s\n", sha256);
	return text;
}

struct reader {
	const char *at; /* NUL-terminated text */
	bool bad;
};

static bool skip(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	if (!r->bad && strncmp(r->at, word, n) == 0)
		r->at += n;
	else
		r->bad = true;
	return !r->bad;
}

static int64_t number(struct reader *r)
{
	char *end;
	int64_t x;

	if (r->bad)
		return 0;
	errno = 0;
	x = strtoll(r->at, &end, 10);
	r->bad = errno || end == r->at;
	r->at = end;
	return x;
}

static uint64_t word(struct reader *r)
{
	char *end;
	uint64_t x;

	if (r->bad)
		return 0;
	errno = 0;
	x = strtoull(r->at, &end, 16);
	r->bad = errno || end == r->at;
	r->at = end;
	return x;
}

static void read_choice(struct reader *r, struct k_choice *c)
{
	int64_t numbers[LINE_NUMBERS];

	for (int i = 0; i < LINE_NUMBERS; i++)
		numbers[i] = number(r);
	from_numbers(numbers, c);
	for (int i = 0; i < K_ALGORITHM_WORDS; i++)
		c->algorithm[i] = word(r);
}

/* NULL without memory; r is bad if the text is invalid. */
static struct k_choice *read_choices(struct reader *r, const char *holds_for, int64_t *n)
{
	struct k_choice *choices;

	*n = 0;
	if (skip(r, first_line) && skip(r, "for ") && skip(r, holds_for) && skip(r, "\nchoices "))
		*n = number(r);
	r->bad = r->bad || *n < 0 || *n > TUNING_CHOICES_MAX;
	if (r->bad)
		*n = 0;
	choices = calloc((size_t)*n + 1, sizeof(*choices));
	for (int64_t i = 0; choices && i < *n && !r->bad; i++)
		read_choice(r, &choices[i]);
	return choices;
}

static int explain(const char *text, const char *holds_for, char *error, size_t error_bytes)
{
	struct reader head = {.at = text};

	if (!skip(&head, first_line))
		snprintf(error, error_bytes, "not a tuning file of this version of gpt2d");
	else if (!skip(&head, "for ") || !skip(&head, holds_for) || !skip(&head, "\n"))
		snprintf(error, error_bytes, "not for %.200s", holds_for);
	else
		snprintf(error, error_bytes, "damaged");
	return -EINVAL;
}

int tuning_parse(const char *text, size_t bytes, const char *holds_for, struct k_choice **out,
	int64_t *n, char *error, size_t error_bytes)
{
	char *copy = malloc(bytes + 1), *again = NULL;
	struct reader r = {.at = copy};
	struct k_choice *choices;
	int64_t found = 0;
	int rc = -ENOMEM;

	snprintf(error, error_bytes, "no memory to read it");
	if (!copy)
		return rc;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	choices = read_choices(&r, holds_for, &found);
	if (choices && !r.bad)
		again = tuning_text(holds_for, choices, found);
	if (choices && (r.bad || (again && (strlen(again) != bytes || memcmp(again, copy, bytes)))))
		rc = explain(copy, holds_for, error, error_bytes);
	else if (again)
		rc = 0;
	if (rc == 0) {
		*out = choices;
		*n = found;
	} else {
		free(choices);
	}
	free(again);
	free(copy);
	return rc;
}

/* ---- the file ---- */

/* Its text, malloc'd, or a negative errno. */
static int read_file(const char *path, char **out, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW), rc = 0;
	struct stat st;
	char *text = NULL;
	size_t n = 0;
	ssize_t got = 1;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (!S_ISREG(st.st_mode))
		rc = -EINVAL;
	else if (st.st_size > FILE_MAX)
		rc = -EFBIG;
	else if (!(text = malloc((size_t)st.st_size + 1)))
		rc = -ENOMEM;
	while (rc == 0 && n < (size_t)st.st_size && got > 0) {
		got = read(fd, text + n, (size_t)st.st_size - n);
		if (got < 0)
			rc = -errno;
		else
			n += (size_t)got;
	}
	close(fd);
	if (rc) {
		free(text);
		return rc;
	}
	*out = text;
	*bytes = n;
	return 0;
}

int tuning_read(const char *dir, const char *holds_for, struct k_choice **out, int64_t *n,
	char *error, size_t error_bytes)
{
	char name[TUNING_NAME_BYTES], path[PATH_MAX], why[256] = "";
	char *text = NULL;
	size_t bytes = 0;
	int rc = 0;

	tuning_name(holds_for, name);
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		rc = -ENAMETOOLONG;
	if (rc == 0)
		rc = read_file(path, &text, &bytes);
	if (rc == 0) {
		rc = tuning_parse(text, bytes, holds_for, out, n, why, sizeof(why));
		free(text);
	}
	if (rc)
		snprintf(error, error_bytes, "%s/%s: %s", dir, name, why[0] ? why : strerror(-rc));
	return rc;
}

int tuning_write(
	const char *dir, const char *holds_for, const char *text, char *error, size_t error_bytes)
{
	char name[TUNING_NAME_BYTES];
	int rc = 0;

	tuning_name(holds_for, name);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		rc = -errno;
	if (rc == 0)
		rc = artifact_write(dir, name, text, strlen(text));
	if (rc)
		snprintf(error, error_bytes, "%s/%s: %s", dir, name, strerror(-rc));
	return rc;
}

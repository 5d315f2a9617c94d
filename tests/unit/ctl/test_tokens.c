/* GPT-2's tokenizer over a small vocabulary that the test makes, and what reads its inputs. */
#include "ctl/data/json_line.h"
#include "ctl/data/tokenizer.h"
#include "ctl/data/vocabulary.h"
#include "proto/base64.h"
#include "proto/utf8.h"
#include "tests/unit/test.h"

enum { IDS_MAX = 4096 };

static char folder[] = "/tmp/test_tokens.XXXXXX";

/* Merges in the order of their rank; the joined token of merge i has the id 256 + i. */
static const struct {
	const char *left, *right;
} merges[] = {{" ", "t"}, {"h", "e"}, {" t", "he"}, {"'", "t"}, {" ", " "}, {"  ", "  "},
	{"a", "b"}, {"b", "a"}, {"l", "l"}, {"'", "ll"}, {"1", "2"}, {"\xc3", "\xa9"}};
enum { N_MERGES = sizeof(merges) / sizeof(merges[0]), SEPARATOR = 256 + N_MERGES };

/* ---- files of that vocabulary ---- */

static void print_token(FILE *file, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned byte = (unsigned char)bytes[i];
		unsigned point = byte;

		if (byte <= 0x20)
			point = 0x100 + byte;
		else if (byte >= 0x7f && byte <= 0xa0)
			point = 0x121 + byte - 0x7f;
		else if (byte == 0xad)
			point = 0x143;
		if (point < 0x80)
			fprintf(file, "%s%c", point == '"' || point == '\\' ? "\\" : "",
				(int)point);
		else
			fprintf(file, "%c%c", (int)(0xc0 | point >> 6),
				(int)(0x80 | (point & 0x3f)));
	}
}

static void print_vocab(FILE *file)
{
	fputc('{', file);
	for (int i = 0; i < 256; i++) {
		const char byte = (char)i;

		fputc('"', file);
		print_token(file, &byte, 1);
		fprintf(file, "\": %d, ", i);
	}
	for (int i = 0; i < N_MERGES; i++) {
		fputc('"', file);
		print_token(file, merges[i].left, strlen(merges[i].left));
		print_token(file, merges[i].right, strlen(merges[i].right));
		fprintf(file, "\": %d, ", 256 + i);
	}
	fprintf(file, "\"<|endoftext|>\": %d}", SEPARATOR);
}

static void print_merge(FILE *file, int i, const char *between)
{
	print_token(file, merges[i].left, strlen(merges[i].left));
	fputs(between, file);
	print_token(file, merges[i].right, strlen(merges[i].right));
}

static void print_merges(FILE *file)
{
	fputs("#version: 0.2\n", file);
	for (int i = 0; i < N_MERGES; i++) {
		print_merge(file, i, " ");
		fputc('\n', file);
	}
}

static void print_tokenizer(FILE *file, bool pairs)
{
	fprintf(file,
		"{\"added_tokens\": [{\"id\": %d, \"content\": \"<|endoftext|>\"}], "
		"\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
		"\"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"vocab\": ",
		SEPARATOR);
	print_vocab(file);
	fputs(", \"merges\": [", file);
	for (int i = 0; i < N_MERGES; i++) {
		fputs(i ? ", " : "", file);
		fputs(pairs ? "[\"" : "\"", file);
		print_merge(file, i, pairs ? "\", \"" : " ");
		fputs(pairs ? "\"]" : "\"", file);
	}
	fputs("]}}", file);
}

static void print_older_tokenizer(FILE *file)
{
	print_tokenizer(file, false);
}

static void print_newer_tokenizer(FILE *file)
{
	print_tokenizer(file, true);
}

static void print_ranks(FILE *file)
{
	char token[64], text[128];

	for (int i = 0; i < 256 + N_MERGES; i++) {
		size_t n = 1;

		token[0] = (char)i;
		if (i >= 256)
			n = (size_t)snprintf(token, sizeof(token), "%s%s", merges[i - 256].left,
				merges[i - 256].right);
		base64_encode(token, n, text);
		fprintf(file, "%s %d\n", text, i);
	}
}

static const char *in_folder(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_with(const char *name, void (*print)(FILE *file))
{
	FILE *file = fopen(in_folder(name), "w");

	assert_non_null(file);
	print(file);
	fclose(file);
}

static void write_text(const char *name, const char *text)
{
	FILE *file = fopen(in_folder(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static struct tokenizer open_gpt2(const char *name)
{
	struct tokenizer t;
	struct ctl_error e = {0};

	if (tokenizer_open(&t, "gpt2", in_folder(name), &e) != 0)
		fail_msg("%s: %s", name, e.message);
	assert_int_equal(t.vocab_size, SEPARATOR + 1);
	assert_int_equal(t.separator, SEPARATOR);
	return t;
}

/* ---- tokens ---- */

static size_t encode(
	const struct tokenizer *t, void *thread, const char *text, size_t n, uint16_t *ids)
{
	struct token_list list = {0};

	t->kind->encode(t, thread, (const unsigned char *)text, n, &list);
	assert_true(list.n <= IDS_MAX);
	if (list.n > 0)
		memcpy(ids, list.ids, list.n * sizeof(*ids));
	free(list.ids);
	return list.n;
}

static const struct {
	const char *text;
	uint16_t ids[16]; /* ends with 0 */
} golden[] = {
	{" the the", {258, 258}},
	{"the", {116, 257}},
	{"don't don'T", {100, 111, 110, 259, 32, 100, 111, 110, 39, 84}},
	{"we'll", {119, 101, 265}},
	{"  a", {32, 32, 97}},
	{"    a", {260, 32, 32, 97}},
	{"a    ", {97, 261}},
	{"a \n", {97, 32, 10}},
	{"aba bab", {262, 97, 32, 98, 262}}, /* ab comes before ba */
	{"x12 12", {120, 266, 32, 266}},
	{"\xc3\xa9", {267}},
	{"  \xe1\xa0\x8e", {32, 32, 0xe1, 0xa0, 0x8e}}, /* U+180E is no blank */
	{"\xff"
	 "ab",
		{0xef, 0xbf, 0xbd, 262}},
	{"ab\xe2\x82", {262, 0xef, 0xbf, 0xbd}},
};

static void check_golden(const struct tokenizer *t)
{
	void *thread = t->kind->thread_begin(t);
	uint16_t ids[IDS_MAX];

	for (int round = 0; round < 2; round++) { /* the second finds pieces again */
		for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
			const size_t n =
				encode(t, thread, golden[i].text, strlen(golden[i].text), ids);
			size_t k = 0;

			while (k < n && ids[k] == golden[i].ids[k])
				k++;
			if (k < n || golden[i].ids[n] != 0)
				fail_msg("\"%s\": token %zu of %zu: %d, expected %d",
					golden[i].text, k, n, k < n ? ids[k] : -1,
					golden[i].ids[k]);
		}
	}
	t->kind->thread_end(thread);
}

static void test_formats(void **state)
{
	static const char *const names[] = {"split", "split/vocab.json", "split/merges.txt",
		"older.json", "newer.json", "ranks.tiktoken"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct tokenizer t = open_gpt2(names[i]);

		check_golden(&t);
		tokenizer_close(&t);
	}
}

static const struct {
	const char *text, *error;
} bad_vocabularies[] = {
	{"", "has no token"},
	{"not a vocabulary\n", "not a vocabulary (expected vocab.json"},
	{"YQ== 65536\n", "rank 65536: a token file holds ids from 0 to"},
	{"YQ== 1\nYg== 1\n", "duplicate"},
	{"{\"a\": 1", ":1: "},
	{"{\"a\": \"x\"}", "a: its ID is not a whole number"},
	{"{\"a\": 1, \"b\": 1}", "duplicate"},
	{"{\"\xe2\x82\xac\": 1}", "not in GPT-2's alphabet"},
	{"{\"model\": {\"type\": \"WordPiece\"}}", "model WordPiece (expected BPE)"},
	{"{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"Sequence\"}}",
		"pre_tokenizer Sequence: not GPT-2's"},
	{"{\"model\": {\"type\": \"BPE\", \"vocab\": {}}, \"pre_tokenizer\": {\"type\": "
	 "\"ByteLevel\"}}",
		"no <|endoftext|>"},
};

static void test_bad_vocabularies(void **state)
{
	for (size_t i = 0; i < sizeof(bad_vocabularies) / sizeof(bad_vocabularies[0]); i++) {
		struct tokenizer t;
		struct ctl_error e = {0};

		write_text("bad", bad_vocabularies[i].text);
		assert_int_equal(tokenizer_open(&t, "gpt2", in_folder("bad"), &e), CTL_USAGE);
		if (!strstr(e.message, bad_vocabularies[i].error) || !strstr(e.message, "/bad"))
			fail_msg("\"%s\" gives \"%s\", expected \"%s\"", bad_vocabularies[i].text,
				e.message, bad_vocabularies[i].error);
	}
}

/* ---- cuts ---- */

static uint32_t random_bits(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

/* Text that is cut where cut says has the tokens of the whole. */
static void test_cuts(void **state)
{
	static const char *const words[] = {" ", "  ", "\n", "\r\n", "\t", "the", " the", "'t",
		"'ll", "12", "\xc2\xa0", "\xc2\x85", "\xe2\x80\x83", "\xe3\x80\x80", "\xe1\x9a\x80",
		"\xe2\x81\x9f", "\xe1\xa0\x8e", "\xc3\xa9", "\xff", "\xe2\x80", "\xf0\x9f\x98\x80",
		"."};
	struct tokenizer t = open_gpt2("split");
	void *thread = t.kind->thread_begin(&t);

	for (int round = 0; round < 3000; round++) {
		char text[256] = "";
		uint16_t whole[IDS_MAX], parts[IDS_MAX];
		size_t n, n_whole, n_parts = 0, at = 0;

		for (int i = 0; i < 20; i++)
			strcat(text, words[random_bits() % (sizeof(words) / sizeof(words[0]))]);
		n = strlen(text);
		n_whole = encode(&t, thread, text, n, whole);
		while (at < n) {
			const size_t left = n - at;
			const size_t seen = 1 + random_bits() % left;
			size_t k = t.kind->cut((unsigned char *)text + at, seen);

			assert_true(k <= seen);
			k = k == 0 ? left : k;
			n_parts += encode(&t, thread, text + at, k, parts + n_parts);
			at += k;
		}
		assert_int_equal(n_parts, n_whole);
		assert_memory_equal(parts, whole, n_whole * sizeof(*whole));
	}
	t.kind->thread_end(thread);
	tokenizer_close(&t);
}

/* ---- bytes and JSON ---- */

/* What Python 3.11 gives for bytes.decode("utf-8", "replace"). */
static const struct {
	const char *bytes, *text;
} replaced[] = {
	{"", ""},
	{"abc", "abc"},
	{"\377", "\357\277\275"},
	{"\200\200", "\357\277\275\357\277\275"},
	{"\300\200", "\357\277\275\357\277\275"},
	{"\303(", "\357\277\275("},
	{"\342\202", "\357\277\275"},
	{"\342\202A", "\357\277\275A"},
	{"\340\200\200", "\357\277\275\357\277\275\357\277\275"},
	{"\355\240\200", "\357\277\275\357\277\275\357\277\275"},
	{"\364\220\200\200", "\357\277\275\357\277\275\357\277\275\357\277\275"},
	{"\360\237\230", "\357\277\275"},
	{"\360\237\230\200", "\360\237\230\200"},
	{"\360\200\200\200", "\357\277\275\357\277\275\357\277\275\357\277\275"},
	{"\365\200", "\357\277\275\357\277\275"},
	{"\342(\241", "\357\277\275(\357\277\275"},
	{"a\360\237\230b\342\202\254\303", "a\357\277\275b\342\202\254\357\277\275"},
	{"12345678\342\202\254\231z", "12345678\342\202\254\357\277\275z"},
};

static void test_utf8(void **state)
{
	for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++) {
		const unsigned char *bytes = (const unsigned char *)replaced[i].bytes;
		const size_t n = strlen(replaced[i].bytes);
		unsigned char out[128];
		int64_t count;
		const size_t k = utf8_replace(bytes, n, out, &count);

		assert_int_equal(k, strlen(replaced[i].text));
		assert_memory_equal(out, replaced[i].text, k);
		assert_int_equal(utf8_valid(bytes, n) == n,
			strcmp(replaced[i].bytes, replaced[i].text) == 0);
		assert_int_equal(count == 0, utf8_valid(bytes, n) == n);
	}
}

static const struct {
	const char *line, *text, *error;
} lines[] = {
	{"{\"id\": 1, \"text\": \"a\\nb\"}", "a\nb", NULL},
	{"{\"text\": \"\"}", "", NULL},
	{"{\"text\": \"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80", NULL},
	{"{\"text\": \"x\\ud83dy\"}", "x\xef\xbf\xbdy", NULL},
	{"{\"text\": \"\\ude00\\ud83d\"}", "\xef\xbf\xbd\xef\xbf\xbd", NULL},
	{"{\"text\": \"\\\\ud83d\"}", "\\ud83d", NULL},
	{"{\"text\": \"a\xff\"}", "a\xef\xbf\xbd", NULL},
	{"{\"n\": 123456789012345678901234567890, \"text\": \"x\"}", "x", NULL},
	{"{\"body\": \"x\", \"id\": 1}", NULL, "member \"text\" is missing"},
	{"{\"body\": \"x\", \"id\": 1}", NULL, "--field; the line has: body, id"},
	{"{\"text\": 1}", NULL, "member \"text\" is not a string"},
	{"[1]", NULL, "not a JSON object"},
	{"{\"text\": \"x\"", NULL, "not JSON: column 12"},
	{"text", NULL, "not JSON"},
};

static void test_lines(void **state)
{
	struct json_line j = {0};
	char error[512];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const int rc = json_line_read(&j, (const unsigned char *)lines[i].line,
			strlen(lines[i].line), "text", error, sizeof(error));

		assert_int_equal(rc == 0, lines[i].text != NULL);
		if (rc != 0 && !strstr(error, lines[i].error))
			fail_msg("%s: \"%s\", expected \"%s\"", lines[i].line, error,
				lines[i].error);
		if (rc == 0) {
			assert_int_equal(j.n, strlen(lines[i].text));
			assert_memory_equal(j.text, lines[i].text, j.n);
		}
	}
	json_line_finish(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats),
		cmocka_unit_test(test_bad_vocabularies),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_lines),
	};
	char command[64];
	int failed;

	if (!mkdtemp(folder))
		return 1;
	snprintf(command, sizeof(command), "mkdir %s/split", folder);
	if (system(command) != 0)
		return 1;
	write_with("split/vocab.json", print_vocab);
	write_with("split/merges.txt", print_merges);
	write_with("older.json", print_older_tokenizer);
	write_with("newer.json", print_newer_tokenizer);
	write_with("ranks.tiktoken", print_ranks);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) != 0 || failed;
}

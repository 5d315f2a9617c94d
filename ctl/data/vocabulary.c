#include "ctl/data/vocabulary.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base64.h"
#include "proto/host/file.h"
#include "proto/host/memory.h"

enum { FILE_BYTES_MAX = 64 << 20, LINE_BYTES = 16384 };

#define SEPARATOR "<|endoftext|>"

/* ---- files ---- */

/* The whole file, NUL-terminated and malloc'd: 0, or CTL_USAGE with e. */
static int read_file(const char *path, char **text, size_t *n, struct ctl_error *e)
{
	/* caches have links to their files */
	char *real = realpath(path, NULL);
	const int rc = real ? file_read(real, FILE_BYTES_MAX, text, n) : -errno;

	free(real);
	if (rc == -EBADMSG || rc == -EFBIG)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: not a vocabulary (expected a regular file of at most %d MiB)",
			path, FILE_BYTES_MAX >> 20);
	return rc ? ctl_error_set(e, CTL_USAGE, "%.800s: %s", path, strerror(-rc)) : 0;
}

/* "dir/vocab.json" and "merges.txt" to "dir/merges.txt"; malloc'd. */
static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return slash ? memory_printed("%.*s/%s", (int)(slash - path), path, name)
		     : memory_text(name);
}

/* ---- tokens ---- */

/* The byte of a code point in GPT-2's files, or -1. */
static int byte_of(uint32_t point)
{
	static const struct {
		uint32_t first, last, byte;
	} ranges[] = {{0x21, 0x7e, 0x21}, {0xa1, 0xac, 0xa1}, {0xae, 0xff, 0xae},
		{0x100, 0x120, 0x00}, {0x121, 0x142, 0x7f}, {0x143, 0x143, 0xad}};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		if (point >= ranges[i].first && point <= ranges[i].last)
			return (int)(point - ranges[i].first + ranges[i].byte);
	}
	return -1;
}

/*
 * Converts a token of vocab.json or merges.txt to its bytes, at most n, in out: the number of
 * bytes, or -EINVAL. GPT-2 writes printable bytes as themselves, the others as U+0100 and
 * following.
 */
static int token_bytes(const char *text, size_t length, unsigned char *out, size_t n)
{
	size_t n_out = 0;

	for (size_t i = 0; i < length; i++) {
		const unsigned char first = (unsigned char)text[i];
		uint32_t point = first;
		int byte;

		if (first >= 0x80) {
			/* all code points of the files have one or two bytes */
			if ((first & 0xe0) != 0xc0 || i + 1 == length ||
				((unsigned char)text[i + 1] & 0xc0) != 0x80)
				return -EINVAL;
			point = (first & 0x1fu) << 6 | ((unsigned char)text[++i] & 0x3fu);
		}
		byte = byte_of(point);
		if (byte < 0 || n_out == n)
			return -EINVAL;
		out[n_out++] = (unsigned char)byte;
	}
	return (int)n_out;
}

/* {"token": id, ...} to v's tokens. */
static int add_tokens(
	struct vocabulary *v, const char *path, const json_t *tokens, struct ctl_error *e)
{
	unsigned char bytes[BPE_TOKEN_BYTES];
	const json_t *id;
	const char *text;

	json_object_foreach((json_t *)tokens, text, id) {
		const bool special = strcmp(text, SEPARATOR) == 0;
		const size_t length = strlen(text);
		const int n = token_bytes(text, length, bytes, sizeof(bytes));
		int rc;

		if (!json_is_integer(id))
			return ctl_error_set(e, CTL_USAGE,
				"%.800s: %.80s: its ID is not a whole number", path, text);
		if (special)
			v->separator = (int32_t)json_integer_value(id);
		if (special)
			rc = bpe_add_special(v->bpe, json_integer_value(id),
				(const unsigned char *)text, length);
		else
			rc = n < 0
				? n
				: bpe_add_token(v->bpe, json_integer_value(id), bytes, (size_t)n);
		if (rc == -ERANGE)
			return ctl_error_set(e, CTL_USAGE,
				"%.800s: %.80s: id %lld: a token file holds ids from 0 to %d", path,
				text, (long long)json_integer_value(id), BPE_IDS - 1);
		if (rc != 0)
			return ctl_error_set(e, CTL_USAGE, "%.800s: %.80s: %s", path, text,
				rc == -EEXIST ? "duplicate ID or bytes"
					      : "not in GPT-2's alphabet of bytes");
	}
	return 0;
}

static int add_merge(struct vocabulary *v, const char *path, const char *left, size_t n_left,
	const char *right, size_t n_right, struct ctl_error *e)
{
	unsigned char a[BPE_TOKEN_BYTES], b[BPE_TOKEN_BYTES];
	const int n_a = token_bytes(left, n_left, a, sizeof(a));
	const int n_b = token_bytes(right, n_right, b, sizeof(b));
	int rc = n_a < 1 || n_b < 1 ? -EINVAL : 0;

	if (rc == 0)
		rc = bpe_add_merge(v->bpe, a, (size_t)n_a, b, (size_t)n_b);
	if (rc == 0)
		return 0;
	return ctl_error_set(e, CTL_USAGE, "%.800s: merge %lld, \"%.*s %.*s\": %s", path,
		(long long)bpe_merges(v->bpe) + 1, (int)(n_left < 80 ? n_left : 80), left,
		(int)(n_right < 80 ? n_right : 80), right,
		rc == -ENOENT           ? "one of its tokens is not in the vocabulary"
			: rc == -EEXIST ? "duplicate merge"
			: rc == -ERANGE ? "too many merges"
					: "not in GPT-2's alphabet of bytes");
}

/* A line "LEFT RIGHT". */
static int add_merge_line(
	struct vocabulary *v, const char *path, const char *line, size_t n, struct ctl_error *e)
{
	const char *blank = memchr(line, ' ', n);

	if (!blank)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: merge %lld: expected two tokens, found \"%.*s\"", path,
			(long long)bpe_merges(v->bpe) + 1, (int)(n < 80 ? n : 80), line);
	return add_merge(v, path, line, (size_t)(blank - line), blank + 1,
		n - (size_t)(blank + 1 - line), e);
}

/* ---- lines ---- */

/* The next line that is not empty, without its newline; NULL at the end of text. */
static const char *next_line(const char **text, const char *end, size_t *n)
{
	while (*text < end) {
		const char *line = *text;
		const char *stop = memchr(line, '\n', (size_t)(end - line));

		if (!stop)
			stop = end;
		*text = stop < end ? stop + 1 : end;
		if (stop > line && stop[-1] == '\r')
			stop--;
		*n = (size_t)(stop - line);
		if (*n > 0)
			return line;
	}
	return NULL;
}

static int load_merges(struct vocabulary *v, const char *path, struct ctl_error *e)
{
	const char *at, *line;
	char *text;
	size_t n, n_line;
	bool first = true;
	int exit = read_file(path, &text, &n, e);

	if (exit != 0)
		return exit;
	at = text;
	while (exit == 0 && (line = next_line(&at, text + n, &n_line))) {
		if (!first || strncmp(line, "#version", 8) != 0)
			exit = add_merge_line(v, path, line, n_line, e);
		first = false;
	}
	free(text);
	return exit;
}

/* A line "BASE64 RANK". */
static int add_rank(
	struct vocabulary *v, const char *path, const char *line, size_t n, struct ctl_error *e)
{
	unsigned char bytes[LINE_BYTES];
	const char *blank = memchr(line, ' ', n);
	long long id = -1;
	size_t n_bytes = 0;
	char *end = NULL;
	int rc = -EINVAL;

	if (blank && n <= LINE_BYTES)
		rc = base64_decode(line, (size_t)(blank - line), bytes, &n_bytes);
	if (rc == 0) {
		id = strtoll(blank + 1, &end, 10);
		rc = end == line + n ? bpe_add_token(v->bpe, id, bytes, n_bytes) : -EINVAL;
	}
	if (rc == -ERANGE)
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: rank %lld: a token file holds ids from 0 to %d", path, id,
			BPE_IDS - 1);
	if (rc != 0)
		return ctl_error_set(e, CTL_USAGE, "%.800s: \"%.*s\": %s", path,
			(int)(n < 80 ? n : 80), line,
			rc == -EEXIST
				? "duplicate rank or token"
				: "not a vocabulary (expected vocab.json, merges.txt, "
				  "tokenizer.json or lines of a token in base64 and its rank)");
	return 0;
}

static int load_ranks(
	struct vocabulary *v, const char *path, const char *text, size_t n, struct ctl_error *e)
{
	const char *at = text, *line;
	size_t n_line;

	while ((line = next_line(&at, text + n, &n_line))) {
		if (add_rank(v, path, line, n_line, e) != 0)
			return e->exit;
	}
	bpe_rank_by_id(v->bpe);
	/* tiktoken's program has the special token: its ID follows the ranks */
	v->separator = (int32_t)bpe_largest_id(v->bpe) + 1;
	if (bpe_add_special(
		    v->bpe, v->separator, (const unsigned char *)SEPARATOR, strlen(SEPARATOR)) != 0)
		return ctl_error_set(e, CTL_USAGE, "%.800s: no ID is left for " SEPARATOR, path);
	return 0;
}

/* ---- JSON ---- */

static int check_tokenizer(const char *path, const json_t *root, struct ctl_error *e)
{
	const json_t *model = json_object_get(root, "model"),
		     *before = json_object_get(root, "pre_tokenizer"),
		     *normalizer = json_object_get(root, "normalizer");
	const char *type = json_string_value(json_object_get(model, "type"));
	const char *cut = json_string_value(json_object_get(before, "type"));

	if (type && strcmp(type, "BPE") != 0)
		return ctl_error_set(
			e, CTL_USAGE, "%.800s: model %.80s (expected BPE)", path, type);
	if (!cut || strcmp(cut, "ByteLevel") != 0 ||
		json_is_true(json_object_get(before, "add_prefix_space")) ||
		json_is_false(json_object_get(before, "use_regex")))
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: pre_tokenizer %.80s: not GPT-2's (expected ByteLevel without "
			"add_prefix_space)",
			path, cut ? cut : "missing");
	if (json_is_object(normalizer))
		return ctl_error_set(e, CTL_USAGE,
			"%.800s: it has a normalizer (GPT-2's tokenizer has none)", path);
	return 0;
}

static int load_tokenizer(
	struct vocabulary *v, const char *path, const json_t *root, struct ctl_error *e)
{
	const json_t *model = json_object_get(root, "model"), *row;
	size_t i;

	if (check_tokenizer(path, root, e) != 0 ||
		add_tokens(v, path, json_object_get(model, "vocab"), e) != 0)
		return e->exit;
	json_array_foreach(json_object_get(root, "added_tokens"), i, row) {
		const char *text = json_string_value(json_object_get(row, "content"));
		const int64_t id = json_integer_value(json_object_get(row, "id"));

		if (text && strcmp(text, SEPARATOR) == 0 && v->separator < 0) {
			v->separator = (int32_t)id;
			bpe_add_special(v->bpe, id, (const unsigned char *)text, strlen(text));
		}
	}
	json_array_foreach(json_object_get(model, "merges"), i, row) {
		/* older files have "LEFT RIGHT", newer ones ["LEFT", "RIGHT"] */
		const json_t *left = json_array_get(row, 0), *right = json_array_get(row, 1);

		if (json_is_string(row))
			add_merge_line(v, path, json_string_value(row), json_string_length(row), e);
		else if (json_is_string(left) && json_is_string(right))
			add_merge(v, path, json_string_value(left), json_string_length(left),
				json_string_value(right), json_string_length(right), e);
		else
			ctl_error_set(
				e, CTL_USAGE, "%.800s: model.merges[%zu]: not a pair", path, i);
		if (e->exit != 0)
			return e->exit;
	}
	return 0;
}

/* name beside path, or other if only that one exists; malloc'd. */
static char *either(const char *path, const char *name, const char *other)
{
	char *a = beside(path, name), *b = beside(path, other);

	if (access(a, F_OK) != 0 && access(b, F_OK) == 0) {
		free(a);
		return b;
	}
	free(b);
	return a;
}

static int load_json(struct vocabulary *v, const char *path, const char *merges, const char *text,
	size_t n, struct ctl_error *e)
{
	json_error_t error;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
	char *found = NULL;
	int exit;

	if (!root)
		return ctl_error_set(e, CTL_USAGE, "%.800s:%d: %s", path, error.line, error.text);
	if (json_is_object(json_object_get(root, "model"))) {
		exit = load_tokenizer(v, path, root, e);
	} else {
		found = merges ? memory_text(merges) : either(path, "merges.txt", "vocab.bpe");
		exit = add_tokens(v, path, root, e);
		if (exit == 0)
			exit = load_merges(v, found, e);
	}
	free(found);
	json_decref(root);
	return exit;
}

/* ---- one file of any format ---- */

static int load_file(
	struct vocabulary *v, const char *path, const char *merges, struct ctl_error *e)
{
	char *text, *tokens;
	size_t n;
	int exit = read_file(path, &text, &n, e);

	if (exit != 0)
		return exit;
	if (!merges && strncmp(text, "#version", 8) == 0) {
		tokens = either(path, "vocab.json", "encoder.json");
		exit = load_file(v, tokens, path, e);
		free(tokens);
		free(text);
		return exit;
	}
	v->path = memory_text(path);
	if (text[strspn(text, " \t\r\n")] == '{')
		exit = load_json(v, path, merges, text, n, e);
	else
		exit = load_ranks(v, path, text, n, e);
	free(text);
	if (exit == 0 && v->separator < 0)
		exit = ctl_error_set(e, CTL_USAGE,
			"%.800s: no " SEPARATOR ", the token between documents", path);
	if (exit == 0 && bpe_missing_byte(v->bpe) >= 0)
		exit = ctl_error_set(e, CTL_USAGE, "%.800s: byte %d has no token", path,
			bpe_missing_byte(v->bpe));
	if (exit == 0 && bpe_merges(v->bpe) == 0)
		exit = ctl_error_set(e, CTL_USAGE, "%.800s: no merges", path);
	v->size = bpe_largest_id(v->bpe) + 1;
	return exit;
}

/* ---- folders ---- */

/* Files of a folder; the first that exists is read. tiktoken's cache has such names. */
static const struct {
	const char *name, *merges; /* merges: in a file of another name */
} known[] = {
	{"vocab.json", "merges.txt"},
	{"encoder.json", "vocab.bpe"},
	{"tokenizer.json", NULL},
	{"gpt2.tiktoken", NULL},
	{"r50k_base.tiktoken", NULL},
	/* SHA-1 of the address of r50k_base.tiktoken, encoder.json, vocab.bpe */
	{"0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4", NULL},
	{"6c7ea1a7e38e3a7f062df639a5b80947f075ffe6", "6d1cbeee0f20b3d9449abfede4726ed8212e3aee"},
};

/* The files in the folder: false if there are none. malloc'd, *merges may be NULL. */
static bool find_in(const char *folder, char **path, char **merges)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		char *a = memory_printed("%s/%s", folder, known[i].name);
		char *b = known[i].merges ? memory_printed("%s/%s", folder, known[i].merges) : NULL;

		if (access(a, R_OK) == 0 && (!b || access(b, R_OK) == 0)) {
			*path = a;
			*merges = b;
			return true;
		}
		free(a);
		free(b);
	}
	return false;
}

/*
 * The default places, as patterns of glob(3): an environment variable, or if unset the other root.
 */
static const struct {
	const char *variable, *otherwise, *rest;
} places[] = {
	{"XDG_DATA_HOME", "~/.local/share", "/gpt2d/gpt2"},
	{NULL, "/usr/local/share", "/gpt2d/gpt2"},
	{NULL, "/usr/share", "/gpt2d/gpt2"},
	{"HF_HUB_CACHE", NULL, "/models--gpt2/snapshots/*"},
	{"HF_HUB_CACHE", NULL, "/models--openai-community--gpt2/snapshots/*"},
	{"HF_HOME", "~/.cache/huggingface", "/hub/models--gpt2/snapshots/*"},
	{"HF_HOME", "~/.cache/huggingface", "/hub/models--openai-community--gpt2/snapshots/*"},
	{"TIKTOKEN_CACHE_DIR", NULL, ""},
	{"DATA_GYM_CACHE_DIR", NULL, ""},
	{"TMPDIR", "/tmp", "/data-gym-cache"},
};

static bool find_usual(char **path, char **merges)
{
	bool found = false;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
		const char *root = places[i].variable ? getenv(places[i].variable) : NULL;
		glob_t matches = {0};
		char *pattern;

		if (!root || !*root)
			root = places[i].otherwise;
		if (!root)
			continue;
		pattern = memory_printed("%s%s", root, places[i].rest);
		if (glob(pattern, GLOB_TILDE, NULL, &matches) == 0) {
			for (size_t k = 0; k < matches.gl_pathc && !found; k++)
				found = find_in(matches.gl_pathv[k], path, merges);
		}
		globfree(&matches);
		free(pattern);
	}
	return found;
}

/* The given path, or the default file. malloc'd. */
static int locate(const char *given, char **path, char **merges, struct ctl_error *e)
{
	struct stat st;

	*merges = NULL;
	if (!given && find_usual(path, merges))
		return 0;
	if (!given)
		return ctl_error_set(e, CTL_USAGE,
			"--tokenizer gpt2: no vocabulary found in ~/.local/share/gpt2d/gpt2, "
			"/usr/share/gpt2d/gpt2 or the caches of Hugging Face and tiktoken\n"
			"name one with --vocab PATH or GPT2D_VOCAB: vocab.json beside merges.txt, "
			"tokenizer.json or gpt2.tiktoken\n"
			"etc/data/README.md (installed as share/gpt2d/data/README.md) says where "
			"to get them");
	if (stat(given, &st) != 0)
		return ctl_error_set(e, CTL_USAGE, "--vocab: %.800s: %s", given, strerror(errno));
	if (!S_ISDIR(st.st_mode)) {
		*path = memory_text(given);
		return 0;
	}
	if (find_in(given, path, merges))
		return 0;
	return ctl_error_set(e, CTL_USAGE,
		"--vocab: %.800s: no vocabulary in this folder (expected vocab.json and "
		"merges.txt, encoder.json and vocab.bpe, tokenizer.json, gpt2.tiktoken or "
		"r50k_base.tiktoken)",
		given);
}

int vocabulary_load(struct vocabulary *v, const char *path, struct ctl_error *e)
{
	char *file, *merges;
	int exit;

	*v = (struct vocabulary){.separator = -1};
	if (!path && getenv("GPT2D_VOCAB") && *getenv("GPT2D_VOCAB"))
		path = getenv("GPT2D_VOCAB");
	exit = locate(path, &file, &merges, e);
	if (exit != 0)
		return exit;
	v->bpe = bpe_create();
	exit = load_file(v, file, merges, e);
	free(file);
	free(merges);
	if (exit != 0)
		vocabulary_finish(v);
	return exit;
}

void vocabulary_finish(struct vocabulary *v)
{
	bpe_destroy(v->bpe);
	free(v->path);
	*v = (struct vocabulary){.separator = -1};
}

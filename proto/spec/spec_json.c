#include "proto/spec/spec_json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/utf8.h"

struct reader {
	const char *p, *end;
	/* the line of p, and a character of it with a known column, not after p */
	int line, column;
	const char *counted;
	struct spec_json_node *node;
	size_t n, room;
	char *pool, *pool_p;
	uint32_t *sorted; /* scratch for the search of duplicates */
	size_t sorted_room;
	const char *path[SPEC_JSON_DEPTH_MAX + 1]; /* keys of the open objects; NULL for arrays */
	int depth;
	struct spec_errors *errors;
	bool duplicates;
};

static int read_value(struct reader *r, uint32_t at);

/* Each character is counted once, so a text without newlines does not take n^2. */
static struct spec_place place(struct reader *r)
{
	for (; r->counted < r->p; r->counted++)
		r->column += ((unsigned char)*r->counted & 0xc0) != 0x80;
	return (struct spec_place){r->line, r->column};
}

static void path_text(const struct reader *r, const char *last, char *out, size_t bytes)
{
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; i <= r->depth && n < bytes; i++) {
		const char *part = i < r->depth ? r->path[i] : last;

		if (part)
			n += (size_t)snprintf(out + n, bytes - n, "%s%s", n ? "." : "", part);
	}
}

static int fail(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct reader *r, const char *format, ...)
{
	char message[256], key[256];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	path_text(r, NULL, key, sizeof(key));
	spec_error_add(r->errors, place(r), key, "%s", message);
	return -EINVAL;
}

static int fail_found(struct reader *r, const char *expected)
{
	static const char no_comments[] =
		"; JSON has no comments, notes are called \"comment\" or \"x_...\"";

	if (r->p == r->end)
		return fail(r, "%s expected, found the end of the text", expected);
	if (*r->p > 0x20 && *r->p < 0x7f)
		return fail(r, "%s expected, found '%c'%s", expected, *r->p,
			*r->p == '/' || *r->p == '#' ? no_comments : "");
	return fail(r, "%s expected, found byte 0x%02x", expected, (unsigned char)*r->p);
}

static void skip_space(struct reader *r)
{
	for (; r->p < r->end; r->p++) {
		if (*r->p == '\n') {
			r->line++;
			r->column = 1;
			r->counted = r->p + 1;
		} else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r')
			break;
	}
}

static uint32_t add_node(struct reader *r)
{
	if (r->n == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->node = memory_resized(r->node, r->room * sizeof(*r->node));
	}
	memset(&r->node[r->n], 0, sizeof(r->node[0]));
	r->node[r->n].at = place(r);
	return (uint32_t)r->n++;
}

static int hex4(struct reader *r, uint32_t *out)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++, r->p++) {
		char c = r->p < r->end ? *r->p : '\0';

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint32_t)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v = v * 16 + (uint32_t)((c | 0x20) - 'a' + 10);
		else
			return fail(r, "four hexadecimal digits expected after \\u");
	}
	*out = v;
	return 0;
}

static void put_utf8(struct reader *r, uint32_t c)
{
	if (c < 0x80) {
		*r->pool_p++ = (char)c;
	} else if (c < 0x800) {
		*r->pool_p++ = (char)(0xc0 | c >> 6);
		*r->pool_p++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*r->pool_p++ = (char)(0xe0 | c >> 12);
		*r->pool_p++ = (char)(0x80 | (c >> 6 & 0x3f));
		*r->pool_p++ = (char)(0x80 | (c & 0x3f));
	} else {
		*r->pool_p++ = (char)(0xf0 | c >> 18);
		*r->pool_p++ = (char)(0x80 | (c >> 12 & 0x3f));
		*r->pool_p++ = (char)(0x80 | (c >> 6 & 0x3f));
		*r->pool_p++ = (char)(0x80 | (c & 0x3f));
	}
}

static int read_unicode_escape(struct reader *r)
{
	uint32_t c = 0, low = 0;
	int rc = hex4(r, &c);

	if (rc)
		return rc;
	if (c == 0)
		return fail(r, "a NUL character is not allowed in a string");
	if (c >= 0xdc00 && c <= 0xdfff)
		return fail(r, "\\u%04x is half of a surrogate pair", c);
	if (c >= 0xd800 && c <= 0xdbff) {
		if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
			return fail(r, "\\u%04x is half of a surrogate pair", c);
		r->p += 2;
		rc = hex4(r, &low);
		if (rc)
			return rc;
		if (low < 0xdc00 || low > 0xdfff)
			return fail(r, "\\u%04x\\u%04x is no surrogate pair", c, low);
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	put_utf8(r, c);
	return 0;
}

static int read_escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = r->p < r->end ? *r->p : '\0';
	const char *at = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		r->p++;
		return read_unicode_escape(r);
	}
	if (!at)
		return fail_found(r, "an escape (one of \"\\/bfnrtu)");
	*r->pool_p++ = to[at - from];
	r->p++;
	return 0;
}

/* The pool has room for the whole text: a decoded string is never longer than its source. */
static int read_string(struct reader *r, const char **out)
{
	char *start = r->pool_p;
	int rc;

	r->p++;
	while (r->p < r->end && *r->p != '"') {
		size_t n;

		if (*r->p == '\\') {
			r->p++;
			rc = read_escape(r);
			if (rc)
				return rc;
			continue;
		}
		if ((unsigned char)*r->p < 0x20)
			return fail(r, "control character 0x%02x in a string (a missing quote?)",
				(unsigned char)*r->p);
		n = utf8_character(r->p, (size_t)(r->end - r->p));
		if (n == 0)
			return fail(r, "byte 0x%02x is not UTF-8", (unsigned char)*r->p);
		memcpy(r->pool_p, r->p, n);
		r->pool_p += n;
		r->p += n;
	}
	if (r->p == r->end)
		return fail(r, "a string does not end");
	r->p++;
	*r->pool_p++ = '\0';
	*out = start;
	return 0;
}

static const char *skip_digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static int read_number(struct reader *r, const char **out)
{
	const char *start = r->p, *digits = *start == '-' ? start + 1 : start;
	const char *p = skip_digits(digits, r->end), *q;
	size_t n;

	r->p = p;
	if (p == digits)
		return fail_found(r, "a digit");
	if (*digits == '0' && p > digits + 1)
		return fail(r, "a number does not begin with 0");
	if (p < r->end && *p == '.') {
		q = skip_digits(p + 1, r->end);
		r->p = q;
		if (q == p + 1)
			return fail_found(r, "a digit after '.'");
		p = q;
	}
	if (p < r->end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < r->end && (*p == '+' || *p == '-'))
			p++;
		q = skip_digits(p, r->end);
		r->p = q;
		if (q == p)
			return fail_found(r, "a digit of the exponent");
		p = q;
	}
	r->p = p;
	n = (size_t)(p - start);
	if (n > SPEC_JSON_NUMBER_MAX)
		return fail(r, "a number of %zu characters, at most %d", n, SPEC_JSON_NUMBER_MAX);
	memcpy(r->pool_p, start, n);
	r->pool_p[n] = '\0';
	*out = r->pool_p;
	r->pool_p += n + 1;
	return 0;
}

static int read_word(struct reader *r, uint32_t at)
{
	static const struct {
		const char *word;
		enum spec_json_type type;
	} words[] = {
		{"true", SPEC_JSON_TRUE},
		{"false", SPEC_JSON_FALSE},
		{"null", SPEC_JSON_NULL},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i].word);

		if ((size_t)(r->end - r->p) >= n && !memcmp(r->p, words[i].word, n)) {
			r->node[at].type = words[i].type;
			r->p += n;
			return 0;
		}
	}
	return fail_found(r, "a value");
}

static int by_key(const void *a, const void *b, void *nodes)
{
	const struct spec_json_node *node = nodes;
	const struct spec_json_node *x = &node[*(const uint32_t *)a];
	const struct spec_json_node *y = &node[*(const uint32_t *)b];
	int c = strcmp(x->key, y->key);

	return c ? c : x < y ? -1 : x > y;
}

static void find_duplicates(struct reader *r, uint32_t object)
{
	size_t count = r->node[object].children, n = 0;
	char key[256];

	if (count < 2)
		return;
	if (count > r->sorted_room) {
		r->sorted = memory_resized(r->sorted, count * sizeof(*r->sorted));
		r->sorted_room = count;
	}
	for (uint32_t i = r->node[object].child; i; i = r->node[i].next)
		r->sorted[n++] = i;
	qsort_r(r->sorted, n, sizeof(*r->sorted), by_key, r->node);
	for (size_t i = 1; i < n; i++) {
		const struct spec_json_node *a = &r->node[r->sorted[i - 1]];
		struct spec_json_node *b = &r->node[r->sorted[i]];

		if (strcmp(a->key, b->key))
			continue;
		r->duplicates = true;
		b->duplicate = true;
		path_text(r, b->key, key, sizeof(key));
		spec_error_add(r->errors, b->at, key, "given twice, first in line %d", a->at.line);
	}
}

/* One member or element, linked after `last` (0: the first). */
static int read_child(struct reader *r, uint32_t parent, uint32_t *last)
{
	bool object = r->node[parent].type == SPEC_JSON_OBJECT;
	const char *key = NULL;
	const uint32_t at = add_node(r);
	int rc;

	if (object) {
		if (r->p == r->end || *r->p != '"')
			return fail_found(r, "a key in double quotes");
		rc = read_string(r, &key);
		if (rc)
			return rc;
		r->node[at].key = key;
		skip_space(r);
		if (r->p == r->end || *r->p != ':')
			return fail_found(r, "':'");
		r->p++;
	}
	if (*last)
		r->node[*last].next = at;
	else
		r->node[parent].child = at;
	r->node[parent].children++;
	*last = at;
	r->path[r->depth++] = key;
	rc = read_value(r, at);
	r->depth--;
	return rc;
}

static int read_children(struct reader *r, uint32_t at)
{
	bool object = *r->p == '{';
	char close = object ? '}' : ']';
	uint32_t last = 0;
	int rc;

	if (r->depth == SPEC_JSON_DEPTH_MAX)
		return fail(r, "nested deeper than %d", SPEC_JSON_DEPTH_MAX);
	r->node[at].type = object ? SPEC_JSON_OBJECT : SPEC_JSON_ARRAY;
	r->p++;
	skip_space(r);
	if (r->p < r->end && *r->p == close) {
		r->p++;
		return 0;
	}
	for (;;) {
		rc = read_child(r, at, &last);
		if (rc)
			return rc;
		skip_space(r);
		if (r->p < r->end && *r->p == close)
			break;
		if (r->p == r->end || *r->p != ',')
			return fail_found(r, object ? "',' or '}'" : "',' or ']'");
		r->p++;
		skip_space(r);
		if (r->p < r->end && *r->p == close)
			return fail(r, "',' before '%c': JSON has no trailing comma", close);
	}
	r->p++;
	if (object)
		find_duplicates(r, at);
	return 0;
}

static int read_value(struct reader *r, uint32_t at)
{
	const char *text = NULL;
	int rc;

	skip_space(r);
	if (r->p == r->end)
		return fail_found(r, "a value");
	if (*r->p == '{' || *r->p == '[')
		return read_children(r, at);
	if (*r->p == '"') {
		r->node[at].type = SPEC_JSON_STRING;
		rc = read_string(r, &text);
	} else if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')) {
		r->node[at].type = SPEC_JSON_NUMBER;
		rc = read_number(r, &text);
	} else {
		return read_word(r, at);
	}
	r->node[at].text = text;
	return rc;
}

/* Of UTF-8, or of UTF-16 in either order. */
static bool has_mark(const char *text, size_t n)
{
	return (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) ||
		(n >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0));
}

static int parse(
	const char *text, size_t n, bool object, struct spec_json *out, struct spec_errors *errors)
{
	struct reader r = {.p = text,
		.end = text + n,
		.line = 1,
		.column = 1,
		.counted = text,
		.errors = errors};
	uint32_t root;
	int rc = 0;

	if (n > SPEC_BYTES_MAX) {
		spec_error_add(errors, (struct spec_place){0}, "", "%zu bytes, at most %d", n,
			SPEC_BYTES_MAX);
		return -EINVAL;
	}
	/* a NUL follows every string and number: quotes make room for it, a last number does not */
	r.pool = r.pool_p = memory_zeroed(n + 2, 1);
	root = add_node(&r);
	if (has_mark(text, n))
		rc = fail(&r, "a byte order mark (BOM) is in front: save it as UTF-8 without one");
	skip_space(&r);
	if (!rc && object && (r.p == r.end || *r.p != '{'))
		rc = fail_found(&r, "a JSON object in braces");
	if (!rc)
		rc = read_value(&r, root);
	if (!rc) {
		skip_space(&r);
		if (r.p < r.end)
			rc = fail_found(&r, "the end of the text");
	}
	if (!rc && !object && r.duplicates)
		rc = -EINVAL;
	free(r.sorted);
	if (rc) {
		free(r.node);
		free(r.pool);
		return rc;
	}
	*out = (struct spec_json){.node = r.node, .n = r.n, .pool = r.pool};
	return 0;
}

int spec_json_parse(const char *text, size_t n, struct spec_json *out, struct spec_errors *errors)
{
	return parse(text, n, false, out, errors);
}

int spec_json_parse_object(
	const char *text, size_t n, struct spec_json *out, struct spec_errors *errors)
{
	return parse(text, n, true, out, errors);
}

void spec_json_finish(struct spec_json *json)
{
	free(json->node);
	free(json->pool);
	*json = (struct spec_json){0};
}

const struct spec_json_node *spec_json_find(
	const struct spec_json *json, const struct spec_json_node *object, const char *key)
{
	const struct spec_json_node *found = NULL;
	uint32_t i = object->type == SPEC_JSON_OBJECT ? object->child : 0;

	for (; i != 0 && !found; i = json->node[i].next) {
		const struct spec_json_node *member = &json->node[i];
		const size_t n = strlen(member->key);

		if (strncmp(member->key, key, n) != 0)
			continue;
		if (key[n] == '\0')
			found = member;
		else if (key[n] == '.')
			found = spec_json_find(json, member, key + n + 1);
	}
	return found;
}

const char *spec_json_describe(const struct spec_json_node *node, char *text, size_t bytes)
{
	static const char *const names[] = {
		[SPEC_JSON_NULL] = "null",
		[SPEC_JSON_FALSE] = "false",
		[SPEC_JSON_TRUE] = "true",
		[SPEC_JSON_ARRAY] = "an array",
		[SPEC_JSON_OBJECT] = "an object",
	};

	if (node->type == SPEC_JSON_STRING)
		snprintf(text, bytes, "the string \"%.60s%s\"", node->text,
			strnlen(node->text, 61) > 60 ? "..." : "");
	else if (node->type == SPEC_JSON_NUMBER)
		snprintf(text, bytes, "the number %.40s%s", node->text,
			strnlen(node->text, 41) > 40 ? "..." : "");
	else
		snprintf(text, bytes, "%s", names[node->type]);
	return text;
}

/* ---- numbers: exact, independent of the locale ---- */

/* The exponent after 'e', limited where SPEC_JSON_NUMBER_MAX digits cannot compensate for it. */
static int64_t read_exponent(const char *p)
{
	const int64_t limit = 1000000;
	bool negative = *p == '-';
	int64_t v = 0;

	if (*p == '-' || *p == '+')
		p++;
	for (; *p; p++)
		if (v < limit)
			v = v * 10 + (*p - '0');
	return negative ? -v : v;
}

enum spec_json_integer spec_json_int64(const char *number, int64_t *out)
{
	char digits[SPEC_JSON_NUMBER_MAX + 1];
	bool negative = *number == '-', point = false;
	size_t n = 0;
	int64_t exponent = 0;
	uint64_t v = 0;

	for (const char *p = number + negative; *p; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (*p == 'e' || *p == 'E') {
			exponent += read_exponent(p + 1);
			break;
		}
		exponent -= point;
		if ((n > 0 || *p != '0') && n < SPEC_JSON_NUMBER_MAX)
			digits[n++] = *p;
	}
	while (n > 0 && digits[n - 1] == '0') {
		n--;
		exponent++;
	}
	if (n == 0) {
		*out = 0;
		return SPEC_JSON_WHOLE;
	}
	if (exponent < 0)
		return SPEC_JSON_FRACTION;
	if ((int64_t)n + exponent > 19)
		return SPEC_JSON_TOO_BIG;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)(digits[i] - '0');
	for (; exponent > 0; exponent--)
		v *= 10;
	if (v > (uint64_t)INT64_MAX + negative)
		return SPEC_JSON_TOO_BIG;
	*out = negative ? (int64_t)(0 - v) : (int64_t)v;
	return SPEC_JSON_WHOLE;
}

/* "C" needs no memory and cannot fail in any libc that has newlocale. */
static locale_t c_locale(void)
{
	return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int spec_json_real(const char *number, double *out)
{
	locale_t c = c_locale();
	int saved = errno;
	double v;
	int rc;

	errno = 0;
	v = strtod_l(number, NULL, c);
	rc = errno == ERANGE || !isfinite(v) ? -ERANGE : 0;
	errno = saved;
	freelocale(c);
	if (rc)
		return rc;
	*out = fpclassify(v) == FP_ZERO ? 0 : v;
	return 0;
}

void spec_json_format_real(double value, char out[SPEC_JSON_REAL_BYTES])
{
	locale_t c = c_locale(), before = uselocale(c);

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, SPEC_JSON_REAL_BYTES, "%.*g", digits, value);
		if (memcmp(&(double){strtod(out, NULL)}, &value, sizeof(value)) == 0)
			break;
	}
	uselocale(before);
	freelocale(c);
}

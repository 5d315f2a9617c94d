#include "ctl/data/json_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"
#include "proto/host/memory.h"

/* The value of four hexadecimal digits, or -1. */
static int hex4(const unsigned char *at, const unsigned char *end)
{
	int value = 0;

	if (end - at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		const int c = at[i];
		const int digit = c >= '0' && c <= '9' ? c - '0'
			: c >= 'a' && c <= 'f'         ? c - 'a' + 10
			: c >= 'A' && c <= 'F'         ? c - 'A' + 10
						       : -1;

		if (digit < 0)
			return -1;
		value = value << 4 | digit;
	}
	return value;
}

/* Jansson refuses half of a surrogate pair, "\ud83d" alone: it is replaced by "\ufffd". */
static void replace_halves(unsigned char *at, unsigned char *end)
{
	while ((at = memchr(at, '\\', (size_t)(end - at))) && at + 2 <= end) {
		const int unit = at[1] == 'u' ? hex4(at + 2, end) : -1;

		if (unit < 0xd800 || unit > 0xdfff) {
			at += 2;
			continue;
		}
		if (unit < 0xdc00 && end - at >= 12 && at[6] == '\\' && at[7] == 'u' &&
			(hex4(at + 8, end) & 0xfc00) == 0xdc00) {
			at += 12;
			continue;
		}
		memcpy(at + 2, "fffd", 4);
		at += 6;
	}
}

/* "id, ended, length": as many members of the object as fit. */
static void list_members(const json_t *root, char *out, size_t out_bytes)
{
	const json_t *value;
	const char *key;
	size_t n = 0;

	*out = '\0';
	json_object_foreach((json_t *)root, key, value) {
		if (n + strlen(key) + 3 > out_bytes)
			break;
		n += (size_t)snprintf(out + n, out_bytes - n, "%s%s", n ? ", " : "", key);
	}
}

static int member_error(const json_t *root, const char *field, char *error, size_t error_bytes)
{
	char members[200];

	if (!json_is_object(root)) {
		snprintf(error, error_bytes, "not a JSON object");
		return -EINVAL;
	}
	list_members(root, members, sizeof(members));
	snprintf(error, error_bytes,
		"member \"%.80s\" is %s\nname the member that holds the text with --field; "
		"the line has: %s",
		field, json_object_get(root, field) ? "not a string" : "missing",
		*members ? members : "none");
	return -EINVAL;
}

int json_line_read(struct json_line *j, const unsigned char *line, size_t n, const char *field,
	char *error, size_t error_bytes)
{
	json_error_t at;
	const json_t *text;

	json_decref(j->root);
	if (j->room <= 3 * n) {
		j->room = 3 * n + 1;
		j->clean = memory_resized(j->clean, j->room);
	}
	n = utf8_replace(line, n, j->clean, &j->replaced);
	replace_halves(j->clean, j->clean + n);
	j->root = json_loadb(
		(const char *)j->clean, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &at);
	if (!j->root) {
		snprintf(error, error_bytes, "not JSON: column %d: %s", at.column, at.text);
		return -EINVAL;
	}
	text = json_object_get(j->root, field);
	if (!json_is_string(text))
		return member_error(j->root, field, error, error_bytes);
	j->text = (const unsigned char *)json_string_value(text);
	j->n = json_string_length(text);
	return 0;
}

void json_line_finish(struct json_line *j)
{
	json_decref(j->root);
	free(j->clean);
	*j = (struct json_line){0};
}

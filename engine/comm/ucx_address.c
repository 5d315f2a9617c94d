#include "engine/comm/ucx_address.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base64.h"
#include "proto/host/memory.h"

static const char magic[] = "gpt2d-ucx 1\n";

/* 0 or -EINVAL; *out is from malloc. */
static int decode(const char *text, unsigned char **out, size_t *out_bytes)
{
	size_t length = strlen(text);
	unsigned char *bytes = memory_zeroed(length / 4 * 3 + 1, 1);
	int status;

	status = base64_decode(text, length, bytes, out_bytes);
	if (status == 0)
		*out = bytes;
	else
		free(bytes);
	return status;
}

char *ucx_address_format(const struct ucx_address *a)
{
	char *plain = NULL, *text;
	size_t plain_bytes = 0;
	FILE *f = memory_stream(&plain, &plain_bytes);

	fprintf(f, "%srank %d\nworld %d\nnonce %" PRIu64 "\npid %" PRId64 "\nhost %s\nat %s\n%s\n",
		magic, a->rank, a->world, a->nonce, a->pid, a->host, a->at, a->settings);
	fwrite(a->worker, 1, a->worker_bytes, f);
	memory_stream_end(f);
	text = memory_zeroed(base64_length(plain_bytes) + 1, 1);
	base64_encode(plain, plain_bytes, text);
	free(plain);
	return text;
}

/* The lines before the worker address: head ends with a newline and is NUL terminated. */
static int parse_head(const char *head, struct ucx_address *out)
{
	int used = 0;
	const char *settings;

	if (strncmp(head, magic, sizeof magic - 1) != 0)
		return -EINVAL;
	head += sizeof magic - 1;
	if (sscanf(head, "rank %d world %d nonce %" SCNu64 " pid %" SCNd64 " host %95s at %63s%n",
		    &out->rank, &out->world, &out->nonce, &out->pid, out->host, out->at,
		    &used) != 6 ||
		head[used] != '\n')
		return -EINVAL;
	settings = head + used + 1;
	if (strlen(settings) >= sizeof out->settings)
		return -EINVAL;
	memcpy(out->settings, settings, strlen(settings) + 1);
	return 0;
}

int ucx_address_parse(const char *text, struct ucx_address *out)
{
	struct ucx_address a = {0};
	unsigned char *plain = NULL, *end;
	size_t plain_bytes = 0;
	int status;

	status = decode(text, &plain, &plain_bytes);
	if (status != 0)
		return status;
	status = -EINVAL;
	end = memmem(plain, plain_bytes, "\n\n", 2);
	if (end == NULL)
		goto out;
	end[1] = '\0';
	status = parse_head((const char *)plain, &a);
	if (status != 0)
		goto out;
	a.worker_bytes = plain_bytes - (size_t)(end + 2 - plain);
	status = -EINVAL;
	if (a.worker_bytes == 0)
		goto out;
	a.worker = memory_zeroed(a.worker_bytes, 1);
	memcpy(a.worker, end + 2, a.worker_bytes);
	*out = a;
	status = 0;
out:
	free(plain);
	return status;
}

/* In the line of settings that begins with key and a space: its value and the value's length. */
static const char *find_value(
	const char *settings, const char *key, size_t key_bytes, size_t *length)
{
	for (const char *line = settings; *line != '\0';) {
		size_t n = strcspn(line, "\n");

		if (n > key_bytes && strncmp(line, key, key_bytes) == 0 && line[key_bytes] == ' ') {
			*length = n - key_bytes - 1;
			return line + key_bytes + 1;
		}
		line += n + (line[n] == '\n');
	}
	*length = strlen("unset");
	return "unset";
}

/* The first key of a that has another value in b; false if there is none. */
static bool first_difference(const char *a, const char *b, const char **key, size_t *key_bytes)
{
	for (const char *line = a; *line != '\0';) {
		size_t n = strcspn(line, "\n"), k = strcspn(line, " \n"), va_bytes, vb_bytes;
		const char *va = find_value(a, line, k, &va_bytes);
		const char *vb = find_value(b, line, k, &vb_bytes);

		if (va_bytes != vb_bytes || strncmp(va, vb, va_bytes) != 0) {
			*key = line;
			*key_bytes = k;
			return true;
		}
		line += n + (line[n] == '\n');
	}
	return false;
}

int ucx_address_compare(const struct ucx_address *here, const struct ucx_address *there,
	char *error, size_t error_bytes)
{
	const char *key, *value_here, *value_there;
	size_t key_bytes, here_bytes, there_bytes;

	if (here->world != there->world) {
		snprintf(error, error_bytes, "%d ranks here, %d there", here->world, there->world);
		return -EPROTO;
	}
	if (!first_difference(here->settings, there->settings, &key, &key_bytes) &&
		!first_difference(there->settings, here->settings, &key, &key_bytes))
		return 0;
	value_here = find_value(here->settings, key, key_bytes, &here_bytes);
	value_there = find_value(there->settings, key, key_bytes, &there_bytes);
	snprintf(error, error_bytes, "%.*s %.*s here, %.*s there", (int)key_bytes, key,
		(int)here_bytes, value_here, (int)there_bytes, value_there);
	return -EPROTO;
}

#include "proto/json_text.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/protocol.h"

enum {
	/* a token's buffer doubles; after the first refusal at most 1 KiB more is read */
	RESERVE_BYTES = 2 * PROTOCOL_LINE_MAX + (256 << 10),
	RESERVE_ALIGN = alignof(max_align_t),
};

/*
 * What a reader gets that has been refused memory, so that it comes to its end without knowing;
 * what it made is thrown away then. Never touched, it costs address space only.
 */
static alignas(RESERVE_ALIGN) char json_reserve[RESERVE_BYTES];
static size_t json_reserve_used;
static pthread_mutex_t json_reserve_lock =
	PTHREAD_MUTEX_INITIALIZER; /* with a reader that was refused */
static atomic_uint_fast64_t json_refusals;

struct reader {
	const char *text;
	size_t left;
	bool refused;
};

static _Thread_local struct reader *json_reading;

static void *from_reserve(size_t bytes)
{
	size_t rounded = (bytes + RESERVE_ALIGN - 1) / RESERVE_ALIGN * RESERVE_ALIGN;
	void *at = json_reserve + json_reserve_used;

	if (rounded < bytes || rounded > sizeof(json_reserve) - json_reserve_used)
		return NULL;
	json_reserve_used += rounded;
	return at;
}

static void *take(size_t bytes)
{
	void *at = malloc(bytes);

	if (at != NULL)
		return at;
	atomic_fetch_add(&json_refusals, 1);
	if (json_reading == NULL)
		return NULL;
	if (!json_reading->refused) {
		pthread_mutex_lock(&json_reserve_lock);
		json_reading->refused = true;
		json_reserve_used = 0;
	}
	return from_reserve(bytes);
}

static void give(void *at)
{
	if ((char *)at < json_reserve || (char *)at >= json_reserve + sizeof(json_reserve))
		free(at);
}

void json_text_init(void)
{
	json_set_alloc_funcs(take, give);
}

uint64_t json_text_refusals(void)
{
	return atomic_load(&json_refusals);
}

/* Nothing more once memory was refused. */
static size_t read_piece(void *out, size_t bytes, void *arg)
{
	struct reader *r = arg;
	size_t n = r->refused ? 0 : r->left < bytes ? r->left : bytes;

	memcpy(out, r->text, n);
	r->text += n;
	r->left -= n;
	return n;
}

int json_text_read(const char *text, size_t n, size_t flags, json_t **out, json_error_t *where)
{
	struct reader r = {.text = text, .left = n};
	json_error_t ignored;
	json_t *json;

	if (n > PROTOCOL_LINE_MAX)
		return -EINVAL;
	json_reading = &r;
	json = json_load_callback(read_piece, &r, flags, where ? where : &ignored);
	json_reading = NULL;
	if (r.refused) {
		json_decref(json);
		pthread_mutex_unlock(&json_reserve_lock);
		return -ENOMEM;
	}
	if (json == NULL)
		return -EINVAL;
	*out = json;
	return 0;
}

json_t *json_text_value(const char *text)
{
	json_t *json = NULL;

	if (text == NULL || json_text_read(text, strlen(text), JSON_DECODE_ANY, &json, NULL) < 0)
		return NULL;
	return json;
}

/* Into a buffer of the right size: only a growing one loses pieces. */
char *json_text_write(const json_t *json, size_t flags, size_t *n)
{
	size_t bytes = json_dumpb(json, NULL, 0, flags);
	char *text = bytes > 0 ? malloc(bytes + 1) : NULL;

	if (text == NULL || json_dumpb(json, text, bytes, flags) != bytes) {
		free(text);
		return NULL;
	}
	text[bytes] = '\0';
	if (n != NULL)
		*n = bytes;
	return text;
}

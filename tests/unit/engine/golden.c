#include "tests/unit/engine/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_INT32, KIND_FLOAT32, KIND_FLOAT64 };

static int read_values(struct golden_record *r, int32_t kind, FILE *in)
{
	size_t bytes = kind == KIND_FLOAT64 ? 8 : 4;
	char raw[8];

	r->values = calloc((size_t)r->n, sizeof(double));
	if (!r->values)
		return -1;
	for (int64_t i = 0; i < r->n; i++) {
		int32_t integer;
		float single;

		if (fread(raw, bytes, 1, in) != 1)
			return -1;
		memcpy(&integer, raw, sizeof(integer));
		memcpy(&single, raw, sizeof(single));
		if (kind == KIND_FLOAT64)
			memcpy(&r->values[i], raw, sizeof(double));
		else
			r->values[i] = kind == KIND_INT32 ? integer : (double)single;
	}
	return 0;
}

static int read_record(struct golden *g, FILE *in)
{
	struct golden_record *r;
	int32_t length, kind;

	if (fread(&length, sizeof(length), 1, in) != 1)
		return feof(in) ? 1 : -1;
	if (length < 0 || length >= (int32_t)sizeof(r->name))
		return -1;
	r = realloc(g->records, (size_t)(g->n + 1) * sizeof(*r));
	if (!r)
		return -1;
	g->records = r;
	r += g->n;
	memset(r, 0, sizeof(*r));
	g->n++;
	if (fread(r->name, 1, (size_t)length, in) != (size_t)length ||
		fread(&kind, sizeof(kind), 1, in) != 1 || fread(&r->n, sizeof(r->n), 1, in) != 1)
		return -1;
	return read_values(r, kind, in);
}

int golden_read(struct golden *g, const char *path)
{
	char magic[8];
	FILE *in = fopen(path, "rb");
	int rc = -1;

	*g = (struct golden){0};
	if (!in)
		return -1;
	if (fread(magic, sizeof(magic), 1, in) == 1 && memcmp(magic, "GPT2GOLD", 8) == 0)
		while ((rc = read_record(g, in)) == 0)
			;
	fclose(in);
	return rc == 1 ? 0 : -1;
}

void golden_free(struct golden *g)
{
	for (int64_t i = 0; i < g->n; i++)
		free(g->records[i].values);
	free(g->records);
}

const struct golden_record *golden_find(const struct golden *g, const char *name)
{
	for (int64_t i = 0; i < g->n; i++)
		if (strcmp(g->records[i].name, name) == 0)
			return &g->records[i];
	return NULL;
}

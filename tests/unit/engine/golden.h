/* golden.h: the records of tests/golden/model.golden (format: make_golden.py). */
#ifndef GPT2D_TESTS_UNIT_ENGINE_GOLDEN_H
#define GPT2D_TESTS_UNIT_ENGINE_GOLDEN_H

#include <stdint.h>

struct golden_record {
	char name[96];
	int64_t n;
	double *values; /* in any stored type */
};
struct golden {
	int64_t n;
	struct golden_record *records;
};

int golden_read(struct golden *g, const char *path); /* 0 or -1 */
void golden_free(struct golden *g);
const struct golden_record *golden_find(const struct golden *g, const char *name);

#endif

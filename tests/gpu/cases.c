#include "tests/gpu/cases.h"

#include <stddef.h>
#include <string.h>

static int place(const char *name, const char *const names[], int n)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	return -1;
}

int cases_set_named(const char *name)
{
	static const char *const names[] = {"near", "exact", "attention", "products"};

	return place(name, names, 4);
}

int cases_extent_named(const char *name)
{
	static const char *const names[] = {"all", "small", "own"};

	return place(name, names, 3);
}

/* only attention of this head size; 0: all */
static void run_list(struct harness *h, const struct cases_case *list,
	enum cases_extent extent, int64_t head,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	for (uint64_t i = 0; list[i].name; i++) {
		bool wanted = list[i].small || extent == CASES_ALL;

		if (wanted && (head == 0 || list[i].shape.d == head))
			run_case(h, &list[i], i + 1);
	}
}

void cases_run(struct harness *h, enum cases_set set, enum cases_extent extent,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	static const struct cases_case *const near[] = {
		cases_linear, cases_layers, cases_attention, cases_optimizer};

	h->own = extent == CASES_OWN;
	if (set == CASES_EXACT) {
		run_list(h, cases_exact, extent, 0, run_case);
		return;
	}
	if (set == CASES_PRODUCTS) {
		run_list(h, cases_products, extent, 0, run_case);
		return;
	}
	if (set == CASES_ATTENTION) {
		run_list(h, cases_attention, extent, 64, run_case);
		return;
	}
	/* the first are nothing but products */
	for (size_t i = h->own ? 1 : 0; i < sizeof near / sizeof near[0]; i++)
		run_list(h, near[i], extent, 0, run_case);
}

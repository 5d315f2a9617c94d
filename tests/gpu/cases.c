#include "tests/gpu/cases.h"

#include <stddef.h>
#include <string.h>

int cases_set_named(const char *name)
{
	static const char *const names[] = {"near", "exact", "attention", "products"};

	for (int i = 0; i < 4; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	return -1;
}

/* head: of attention, the only head size wanted; 0: all */
static void run_list(struct harness *h, const struct cases_case *list, bool small_only,
	int64_t head,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	for (uint64_t i = 0; list[i].name; i++) {
		if ((list[i].small || !small_only) && (head == 0 || list[i].shape.d == head))
			run_case(h, &list[i], i + 1);
	}
}

void cases_run(struct harness *h, enum cases_set set, bool small_only,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	static const struct cases_case *const near[] = {
		cases_linear, cases_layers, cases_attention, cases_optimizer};

	if (set == CASES_EXACT) {
		run_list(h, cases_exact, small_only, 0, run_case);
		return;
	}
	if (set == CASES_PRODUCTS) {
		run_list(h, cases_products, small_only, 0, run_case);
		return;
	}
	if (set == CASES_ATTENTION) {
		run_list(h, cases_attention, small_only, 64, run_case);
		return;
	}
	for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
		run_list(h, near[i], small_only, 0, run_case);
}

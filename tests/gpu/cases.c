#include "tests/gpu/cases.h"

#include <stddef.h>

static void run_list(struct harness *h, const struct cases_case *list, bool small_only,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	for (uint64_t i = 0; list[i].name; i++) {
		if (list[i].small || !small_only)
			run_case(h, &list[i], i + 1);
	}
}

void cases_run(struct harness *h, enum cases_set set, bool small_only,
	void (*run_case)(struct harness *h, const struct cases_case *c, uint64_t seed))
{
	static const struct cases_case *const near[] = {
		cases_linear, cases_layers, cases_attention, cases_optimizer};

	if (set == CASES_EXACT) {
		run_list(h, cases_exact, small_only, run_case);
		return;
	}
	for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
		run_list(h, near[i], small_only, run_case);
}

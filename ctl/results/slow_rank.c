#include "ctl/results/slow_rank.h"

#include <math.h>

#include "ctl/print/format.h"
#include "proto/rpc.h"
#include "proto/spec/spec.h"

static const double NOTABLE_RATIO = 1.05;
static const double NOTABLE_SHARE = 0.75; /* of the parts: a step held up makes the mean of one */

struct tally {
	int64_t segments;
	double sum;
};

/* How much more work the slowest has; nan: nothing that can be. */
static double ratio_of(const json_t *slowest, int64_t rank)
{
	const double others = format_real(slowest, "others_median_s");
	const double ratio = format_real(slowest, "work_mean_s") / others;

	return rank >= 0 && rank < SPEC_WORLD_MAX && others > 0.0 ? ratio : (double)NAN;
}

/* Older engines did not tell. */
static bool is_steady(const json_t *slowest)
{
	const int64_t parts = format_int(slowest, "parts", 0);

	return parts == 0 || (double)format_int(slowest, "most_in", 0) >=
		NOTABLE_SHARE * (double)parts;
}

json_t *slow_rank_find(const json_t *segments)
{
	struct tally tally[SPEC_WORLD_MAX] = {{0}};
	int64_t of = 0, most = 0;
	const json_t *segment;
	size_t i;

	json_array_foreach(segments, i, segment) {
		const json_t *slowest =
			json_object_get(json_object_get(segment, "summary"), "slowest_rank");
		const int64_t rank = format_int(slowest, "rank", -1);
		const double ratio = ratio_of(slowest, rank);

		if (!isfinite(ratio))
			continue;
		of++;
		if (ratio < NOTABLE_RATIO || !is_steady(slowest))
			continue;
		tally[rank].segments++;
		tally[rank].sum += ratio;
		if (tally[rank].segments > tally[most].segments)
			most = rank;
	}
	if (2 * tally[most].segments <= of)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:o}", "rank", (json_int_t)most, "segments",
		(json_int_t)tally[most].segments, "of", (json_int_t)of, "work_ratio",
		rpc_real(tally[most].sum / (double)tally[most].segments));
}

void slow_rank_print(const struct term *t, const json_t *slow)
{
	const int64_t of = format_int(slow, "of", 0);
	char change[FORMAT_BYTES];

	if (!json_is_object(slow))
		return;
	fprintf(t->file, "slow rank: the others wait for rank %lld, %s work in a step",
		(long long)format_int(slow, "rank", 0),
		format_change(format_real(slow, "work_ratio"), change));
	if (of > 1)
		fprintf(t->file, ", in %lld of %lld segments",
			(long long)format_int(slow, "segments", 0), (long long)of);
	fputc('\n', t->file);
}

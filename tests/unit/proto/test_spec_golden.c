/*
 * Every NAME.json of a directory against NAME.expect: what spec_parse says of it, errors or the
 * canonical form. The first lines of NAME.expect may be options: "@ world N", "@ base DIR" ("-":
 * none), "@ set KEY=VALUE". With SPEC_GOLDEN_UPDATE in the environment what follows them is written
 * anew. Prints TAP.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/spec/spec.h"

enum { SETS_MAX = 8, CASES_MAX = 1000 };

struct expectation {
	char *text; /* the file */
	const char *wanted;
	int world;
	const char *base;
	const char *sets[SETS_MAX];
	size_t n_sets;
	char options[2048]; /* the lines, as they stand */
};

static char *read_file(const char *path, size_t *n)
{
	FILE *in = fopen(path, "r");
	char *text = calloc(1, SPEC_BYTES_MAX + 2);

	if (!in || !text) {
		free(text);
		if (in)
			fclose(in);
		return NULL;
	}
	*n = fread(text, 1, SPEC_BYTES_MAX + 1, in);
	fclose(in);
	return text;
}

static void read_options(struct expectation *e)
{
	char *line = e->text, *end;
	size_t used = 0;

	e->world = 1;
	e->base = "/specs";
	while (!strncmp(line, "@ ", 2) && (end = strchr(line, '\n'))) {
		*end = '\0';
		used += (size_t)snprintf(
			e->options + used, sizeof(e->options) - used, "%s\n", line);
		if (!strncmp(line, "@ world ", 8))
			e->world = atoi(line + 8);
		else if (!strncmp(line, "@ base ", 7))
			e->base = strcmp(line + 7, "-") ? line + 7 : NULL;
		else if (!strncmp(line, "@ set ", 6) && e->n_sets < SETS_MAX)
			e->sets[e->n_sets++] = line + 6;
		line = end + 1;
	}
	e->wanted = line;
}

static char *errors_text(const struct spec_errors *errors, const char *file)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	spec_errors_print(errors, file, out);
	fclose(out);
	return text;
}

/* The canonical text reads back, with no folder given, to the same spec and the same text. */
static const char *round_trip(const struct spec *spec, const char *canonical, int world)
{
	static struct spec_errors errors;
	struct spec_options options = {.world = world};
	struct spec *again = NULL;
	const char *wrong = NULL;
	char *text = NULL, a[SPEC_HASH_HEX + 1], b[SPEC_HASH_HEX + 1];

	if (spec_parse(canonical, strlen(canonical), &options, &again, &errors)) {
		spec_errors_print(&errors, "canonical", stdout);
		return "the canonical form is refused";
	}
	text = spec_canonical(again);
	spec_hash(spec, a);
	spec_hash(again, b);
	if (!text || strcmp(text, canonical))
		wrong = "the canonical form of the canonical form differs";
	else if (memcmp(spec, again, sizeof(*spec)))
		wrong = "the canonical form reads back to another spec";
	else if (strlen(a) != SPEC_HASH_HEX || strcmp(a, b))
		wrong = "the hashes differ";
	free(text);
	spec_free(again);
	return wrong;
}

static const char *round_trip_arms(const struct spec *spec, int world)
{
	static struct spec_errors errors;
	struct spec_options options = {.world = world};
	const char *wrong = NULL;

	for (size_t i = 0; i < spec->n_arms && !wrong; i++) {
		char *text = spec_canonical_arm(spec, i);
		struct spec *one = NULL;

		if (!text || spec_parse(text, strlen(text), &options, &one, &errors))
			wrong = "the canonical form of an arm is refused";
		else if (one->n_arms != 1 || one->has_arms ||
				memcmp(&one->arms[0].config, &spec->arms[i].config,
					sizeof(one->arms[0].config)))
			wrong = "the canonical form of an arm reads back to another configuration";
		spec_free(one);
		free(text);
	}
	return wrong;
}

static int update(const char *path, const struct expectation *e, const char *got)
{
	FILE *out = fopen(path, "w");

	if (!out)
		return -errno;
	fprintf(out, "%s%s", e->options, got);
	return fclose(out) ? -errno : 0;
}

/* NULL, or what is wrong. */
static const char *run_case(const char *dir, const char *name)
{
	static struct spec_errors errors;
	struct expectation e = {0};
	struct spec_options options = {0};
	struct spec *spec = NULL;
	char json[4096], expect[4096], file[300];
	const char *wrong = NULL;
	char *text = NULL, *got = NULL;
	size_t n = 0, ignored;
	int rc;

	snprintf(json, sizeof(json), "%s/%s.json", dir, name);
	snprintf(expect, sizeof(expect), "%s/%s.expect", dir, name);
	snprintf(file, sizeof(file), "%s.json", name);
	text = read_file(json, &n);
	e.text = read_file(expect, &ignored);
	if (!e.text && getenv("SPEC_GOLDEN_UPDATE"))
		e.text = calloc(1, 1);
	if (!text || !e.text) {
		wrong = "a file is missing";
		goto out;
	}
	read_options(&e);
	options.world = e.world;
	options.base_dir = e.base;
	options.sets = e.sets;
	options.n_sets = e.n_sets;
	rc = spec_parse(text, n, &options, &spec, &errors);
	if (rc && rc != -EINVAL) {
		wrong = strerror(-rc);
		goto out;
	}
	got = rc ? errors_text(&errors, file) : spec_canonical(spec);
	if (!got)
		wrong = "no text";
	else if (!rc)
		wrong = round_trip(spec, got, e.world);
	if (!wrong && !rc)
		wrong = round_trip_arms(spec, e.world);
	if (!wrong && getenv("SPEC_GOLDEN_UPDATE"))
		wrong = update(expect, &e, got) ? "cannot be written" : NULL;
	else if (!wrong && strcmp(got, e.wanted)) {
		printf("# wanted:\n%s\n# got:\n%s\n", e.wanted, got);
		wrong = "differs";
	}
out:
	spec_free(spec);
	free(text);
	free(e.text);
	free(got);
	return wrong;
}

static int is_json(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 5 && !strcmp(d->d_name + n - 5, ".json");
}

int main(int argc, char **argv)
{
	struct dirent **list;
	int n, failed = 0;

	if (argc != 2)
		return 2;
	n = scandir(argv[1], &list, is_json, alphasort);
	if (n <= 0 || n > CASES_MAX) {
		printf("Bail out! %s: %d cases\n", argv[1], n);
		return 1;
	}
	printf("1..%d\n", n);
	for (int i = 0; i < n; i++) {
		char name[256];
		const char *wrong;

		snprintf(name, sizeof(name), "%.*s", (int)strlen(list[i]->d_name) - 5,
			list[i]->d_name);
		wrong = run_case(argv[1], name);
		printf("%sok %d %s%s%s\n", wrong ? "not " : "", i + 1, name, wrong ? " # " : "",
			wrong ? wrong : "");
		failed += wrong != NULL;
		free(list[i]);
	}
	free(list);
	return failed > 0;
}

/*
 * The cases of spec/cases.txt: what spec_parse says of each text. A case is
 *
 *   == NAME
 *   @ world N | @ base DIR ("-": none) | @ set KEY=VALUE | @ without KEYS | @ escaped | @ exactly
 *   the text; with "@ escaped", %NN is the byte NN and %{N*c} is N times c; after "+" the members
 *   that follow those of a standard spec, of which "@ without" leaves some out
 *   --
 *   the expected result
 *
 * A refused spec gives "! ERROR" for each error. An accepted spec gives its canonical form with
 * "@ exactly", else the differences between its canonical form and the first case: "KEY VALUE", and
 * "- KEY" where the key is missing. The keys of "design" are compared with the first exact case
 * that has arms. With SPEC_GOLDEN_UPDATE in the environment the test writes its results to the
 * file. Prints TAP.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/memory.h"
#include "proto/spec/spec.h"

enum { SETS_MAX = 8, FLAT_MAX = 1200, LINE_MAX_BYTES = 8192 };

struct golden {
	char name[128];
	struct spec_options options;
	const char *sets[SETS_MAX];
	char *without;
	bool escaped, exactly;
	char *text, *expected;
	size_t n;
	bool own_base; /* options.base_dir is allocated */
};

/* The canonical form as lines of "dotted.key value". */
struct flat {
	size_t n;
	char *line[FLAT_MAX];
};

static struct flat first, design;

static void read_option(struct golden *c, char *line)
{
	if (!strncmp(line, "world ", 6))
		c->options.world = atoi(line + 6);
	else if (!strncmp(line, "base ", 5)) {
		c->own_base = strcmp(line + 5, "-") != 0;
		c->options.base_dir = c->own_base ? memory_text(line + 5) : NULL;
	} else if (!strncmp(line, "set ", 4) && c->options.n_sets < SETS_MAX)
		c->sets[c->options.n_sets++] = memory_text(line + 4);
	else if (!strncmp(line, "without ", 8))
		c->without = memory_text(line + 8);
	else if (!strcmp(line, "escaped"))
		c->escaped = true;
	else if (!strcmp(line, "exactly"))
		c->exactly = true;
	else
		printf("# %s: no such option: %s\n", c->name, line);
}

/* Expands %NN and %{N*c}. */
static void unescape(struct golden *c)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = memory_stream(&text, &n);

	for (const char *p = c->text; p < c->text + c->n;) {
		char two[3] = {p[0] == '%' ? p[1] : '\0', p[0] == '%' ? p[2] : '\0', '\0'}, *end;

		if (*p != '%') {
			putc(*p++, out);
		} else if (two[0] == '{') {
			for (long times = strtol(p + 2, &end, 10); times > 0; times--)
				putc(end[1], out);
			p = end + 3;
		} else {
			putc((int)strtol(two, NULL, 16), out);
			p += 3;
		}
	}
	memory_stream_end(out);
	free(c->text);
	c->text = text;
	c->n = n;
}

static void add_standard(struct golden *c)
{
	static const char *const standard[][2] = {
		{"model", "\"nano\""},
		{"data", "{\"kind\": \"synthetic\"}"},
		{"seq_len", "64"},
		{"train_micro_batch_size_per_gpu", "4"},
		{"work", "{\"optimizer_steps\": 10}"},
	};
	const char *more = c->text + 1;
	char *text = NULL;
	size_t n = 0, bytes;
	FILE *out = memory_stream(&text, &bytes);

	for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
		if (c->without && strstr(c->without, standard[i][0]))
			continue;
		fprintf(out, "%s%s \"%s\": %s", n ? "," : "{", n == 0 || i == 3 ? "\n" : "",
			standard[i][0], standard[i][1]);
		n++;
	}
	fprintf(out, "%s%s\n}", *more ? ",\n" : "", more);
	memory_stream_end(out);
	free(c->text);
	c->text = text;
	c->n = bytes;
}

/* The next case of the file; false at its end. Its own lines but the expected ones go to copy. */
static bool read_case(FILE *in, struct golden *c, FILE *copy)
{
	static char line[LINE_MAX_BYTES];
	enum { BEFORE, OPTIONS, TEXT, EXPECTED } part = BEFORE;
	FILE *out = NULL;
	size_t n_expected;
	long at = 0;

	*c = (struct golden){.options = {.world = 1, .base_dir = "/specs"}};
	while (fgets(line, sizeof(line), in)) {
		if (part == EXPECTED && !strncmp(line, "== ", 3)) {
			fseek(in, at, SEEK_SET);
			break;
		}
		at = ftell(in);
		if (part != EXPECTED)
			fputs(line, copy);
		if (part == BEFORE && sscanf(line, "== %127s", c->name) == 1) {
			part = OPTIONS;
		} else if (part == OPTIONS && !strncmp(line, "@ ", 2)) {
			line[strcspn(line, "\n")] = '\0';
			read_option(c, line + 2);
		} else if (part == EXPECTED) {
			fputs(line, out);
		} else if (part == OPTIONS || part == TEXT) {
			if (!out)
				out = memory_stream(&c->text, &c->n);
			part = TEXT;
			if (strcmp(line, "--\n") != 0) {
				fputs(line, out);
				continue;
			}
			memory_stream_end(out);
			c->n -= c->n > 0; /* the line end before "--" */
			out = memory_stream(&c->expected, &n_expected);
			part = EXPECTED;
		}
	}
	if (out)
		memory_stream_end(out);
	c->options.sets = c->sets;
	if (c->escaped)
		unescape(c);
	if (c->text && c->text[0] == '+') {
		c->text[c->n] = '\0';
		add_standard(c);
	}
	return part == EXPECTED;
}

static void free_case(struct golden *c)
{
	for (size_t i = 0; i < c->options.n_sets; i++)
		free((char *)c->sets[i]);
	if (c->own_base)
		free((char *)c->options.base_dir);
	free(c->text);
	free(c->without);
	free(c->expected);
}

static char *errors_text(const struct spec_errors *errors)
{
	char *printed = NULL, *text = NULL, *rest, *line;
	size_t n;
	FILE *out = memory_stream(&printed, &n);

	spec_errors_print(errors, "", out);
	memory_stream_end(out);
	out = memory_stream(&text, &n);
	rest = printed;
	while ((line = strsep(&rest, "\n")) && *line)
		fprintf(out, "!%s%s\n", line[1] == ' ' ? "" : " ", line + 1);
	memory_stream_end(out);
	free(printed);
	return text;
}

static void flatten(const char *canonical, struct flat *flat)
{
	char *copy = memory_text(canonical), *rest = copy, *line, path[512] = "";

	flat->n = 0;
	while ((line = strsep(&rest, "\n"))) {
		char *key, *value, *dot = strrchr(path, '\n');
		size_t n;

		line += strspn(line, " ");
		n = strlen(line);
		if (n > 0 && line[n - 1] == ',')
			line[--n] = '\0';
		if (!strcmp(line, "}") && dot)
			*dot = '\0';
		if (line[0] != '"')
			continue;
		key = line + 1;
		value = strstr(key, "\": ");
		*value = '\0';
		value += 3;
		if (!strcmp(value, "{")) {
			strcat(strcat(path, "\n"), key);
			continue;
		}
		flat->line[flat->n] = memory_printed(
			"%s%s%s %s", path[0] ? path + 1 : "", path[0] ? "." : "", key, value);
		for (char *p = flat->line[flat->n]; *p; p++)
			*p = *p == '\n' ? '.' : *p;
		flat->n++;
	}
	free(copy);
}

static void clear(struct flat *flat)
{
	while (flat->n > 0)
		free(flat->line[--flat->n]);
}

static bool holds(const struct flat *flat, const char *line, size_t n)
{
	for (size_t i = 0; i < flat->n; i++)
		if (!strncmp(flat->line[i], line, n))
			return true;
	return false;
}

static bool is_design(const char *line)
{
	return !strncmp(line, "design.", 7);
}

/* The differences between the canonical form and the first case. */
static char *changes_text(const char *canonical)
{
	struct flat flat;
	const struct flat *base;
	char *text = NULL;
	size_t n = 0;
	FILE *out = memory_stream(&text, &n);

	flatten(canonical, &flat);
	for (size_t i = 0; i < flat.n; i++) {
		base = is_design(flat.line[i]) ? &design : &first;
		if (!holds(base, flat.line[i], strlen(flat.line[i]) + 1))
			fprintf(out, "%s\n", flat.line[i]);
	}
	for (size_t i = 0; i < first.n; i++) {
		const size_t key = strcspn(first.line[i], " ");

		if (!holds(&flat, first.line[i], key + 1))
			fprintf(out, "- %.*s\n", (int)key, first.line[i]);
	}
	memory_stream_end(out);
	clear(&flat);
	return text;
}

/* The canonical text reads back, with no folder given, to the same spec and the same text. */
static const char *round_trip(const struct spec *spec, const char *canonical, int world)
{
	static struct spec_errors errors;
	struct spec_options options = {.world = world};
	struct spec *again = NULL;
	const char *wrong = NULL;
	char *text = NULL;

	if (spec_parse(canonical, strlen(canonical), &options, &again, &errors)) {
		spec_errors_print(&errors, "canonical", stdout);
		return "the canonical form is refused";
	}
	text = spec_canonical(again);
	if (strcmp(text, canonical))
		wrong = "the canonical form of the canonical form differs";
	else if (memcmp(spec, again, offsetof(struct spec, arms)) ||
		memcmp(spec->arms, again->arms, spec->n_arms * sizeof(*spec->arms)))
		wrong = "the canonical form reads back to another spec";
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

		if (spec_parse(text, strlen(text), &options, &one, &errors))
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

/* What is found; *wrong is NULL, or what is wrong beside it. */
static char *run_case(const struct golden *c, const char **wrong)
{
	static struct spec_errors errors;
	struct spec *spec = NULL;
	char *canonical, *found;

	*wrong = NULL;
	if (spec_parse(c->text, c->n, &c->options, &spec, &errors))
		return errors_text(&errors);
	canonical = spec_canonical(spec);
	*wrong = round_trip(spec, canonical, c->options.world);
	if (!*wrong)
		*wrong = round_trip_arms(spec, c->options.world);
	if (first.n == 0)
		flatten(canonical, &first);
	if (design.n == 0 && c->exactly && spec->has_arms)
		flatten(canonical, &design);
	found = c->exactly ? memory_text(canonical) : changes_text(canonical);
	spec_free(spec);
	free(canonical);
	return found;
}

static int update(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	return !out || fputs(text, out) < 0 || fclose(out) != 0;
}

int main(int argc, char **argv)
{
	FILE *in = argc == 2 ? fopen(argv[1], "r") : NULL, *copy;
	int n = 0, failed = 0;
	struct golden c;
	char *text = NULL;
	size_t bytes;

	if (!in)
		return 2;
	copy = memory_stream(&text, &bytes);
	while (read_case(in, &c, copy)) {
		const char *wrong;
		char *found = run_case(&c, &wrong);

		fputs(found, copy);
		if (!wrong && !getenv("SPEC_GOLDEN_UPDATE") && strcmp(found, c.expected)) {
			printf("# expected:\n%s\n# found:\n%s\n", c.expected, found);
			wrong = "differs";
		}
		printf("%sok %d %s%s%s\n", wrong ? "not " : "", ++n, c.name, wrong ? " # " : "",
			wrong ? wrong : "");
		failed += wrong != NULL;
		free(found);
		free_case(&c);
	}
	printf("1..%d\n", n);
	memory_stream_end(copy);
	if (getenv("SPEC_GOLDEN_UPDATE"))
		failed += update(argv[1], text);
	clear(&first);
	clear(&design);
	free(text);
	fclose(in);
	return failed > 0 || n < 200;
}

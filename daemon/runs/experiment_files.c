#include "daemon/runs/experiment_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "proto/artifact.h"
#include "proto/experiment/comparison.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/spec/spec_json.h"
#include "proto/version.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* ---- experiment.json ---- */

static json_t *machine_json(void)
{
	struct utsname u;
	json_t *machine;

	uname(&u);
	machine = json_pack("{so ss ss ss sI}", "hostname", json_string(u.nodename), "system",
		u.sysname, "release", u.release, "architecture", u.machine, "processors",
		(json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
	return machine;
}

static json_t *versions_json(void)
{
	return json_pack("{ss ss ss ss ss}", "gpt2d", VERSION_RELEASE, "build", version_build,
		"compiler", COMPILER, "build_type", GPT2D_BUILD_TYPE, "jansson",
		jansson_version_str());
}

/* NULL: no segment is done. */
static json_t *experiment_json(const struct experiment_files *f)
{
	json_t *show = json_pack("{sO sO}", "run", f->run, "segments", f->rows), *file;
	char *canonical;

	if (comparison_make(f->spec, show, NULL, &file) < 0) {
		json_decref(show);
		return NULL;
	}
	canonical = spec_canonical(f->spec);
	json_object_set(file, "engines", f->engines);
	json_object_set_new(file, "spec", json_loads(canonical, 0, NULL));
	json_object_set(file, "segments", f->rows);
	json_object_set_new(file, "versions", versions_json());
	json_object_set_new(file, "machine", machine_json());
	json_object_set_new(file, "written_at", clock_json(clock_utc_ns()));
	free(canonical);
	json_decref(show);
	return file;
}

/* ---- summary.csv ---- */

/* The columns: members of a segment, and of its summary, which is null before it is done. */
static const struct column {
	const char *name;
	const char *member;
	bool of_summary;
} columns[] = {
	{"segment", "segment", false},
	{"block", "block", false},
	{"position", "position", false},
	{"arm", "arm", false},
	{"state", "state", false},
	{"void", "void", false},
	{"tokens_measured", "tokens_measured", true},
	{"seconds_measured", "seconds_measured", true},
	{"tok_s", "tok_s_global", true},
	{"step_median_ns", "step_median_ns", true},
	{"step_p95_ns", "step_p95_ns", true},
	{"exposed_comm_mean_s", "exposed_comm_mean_s", true},
	{"exposed_transfer_mean_s", "exposed_transfer_mean_s", true},
	{"exposed_wait_mean_s", "exposed_wait_mean_s", true},
	{"energy_j", "energy_j", true},
	{"mfu", "mfu", true},
	{"loss_last", "loss_last", true},
	{"val_loss", "val_loss", true},
	{"steps_attempted", "steps_attempted", true},
	{"steps_applied", "steps_applied", true},
	{"steps_skipped", "steps_skipped", true},
	{"switch_ns", "switch_ns", true},
	{"started_at", "started_at", false},
	{"ended_at", "ended_at", false},
	{"reason", "reason", false},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* RFC 4180: quoted if the text has a comma, a quote or a newline. */
static void print_text(FILE *out, const char *text)
{
	if (strpbrk(text, ",\"\r\n") == NULL) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text != '\0'; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void print_value(FILE *out, const json_t *value)
{
	char real[SPEC_JSON_REAL_BYTES];

	if (json_is_string(value)) {
		print_text(out, json_string_value(value));
	} else if (json_is_integer(value)) {
		fprintf(out, "%lld", (long long)json_integer_value(value));
	} else if (json_is_real(value)) {
		spec_json_format_real(json_real_value(value), real);
		fputs(real, out);
	}
}

static char *csv_text(const json_t *rows, size_t *n)
{
	const json_t *row, *from;
	char *text;
	FILE *out = memory_stream(&text, n);
	size_t i;

	for (size_t c = 0; c < COLUMNS; c++)
		fprintf(out, "%s%s", c ? "," : "", columns[c].name);
	fputc('\n', out);
	json_array_foreach(rows, i, row) {
		for (size_t c = 0; c < COLUMNS; c++) {
			from = columns[c].of_summary ? json_object_get(row, "summary") : row;
			if (c > 0)
				fputc(',', out);
			print_value(out, json_object_get(from, columns[c].member));
		}
		fputc('\n', out);
	}
	memory_stream_end(out);
	return text;
}

/* ---- both ---- */

static int write_hashed(
	struct experiment_files *f, const char *name, const char *key, const char *text, size_t n)
{
	const size_t used = strlen(f->hashes);
	char sha256[65];
	int rc = artifact_sha256(text, n, sha256);

	if (rc == 0)
		rc = artifact_write(f->dir, name, text, n);
	if (rc == 0)
		snprintf(f->hashes + used, sizeof(f->hashes) - used, " %s=%s", key, sha256);
	return rc;
}

int experiment_files_write(struct experiment_files *f)
{
	json_t *file = experiment_json(f);
	char *text;
	size_t n;
	int rc;

	if (file == NULL)
		return 0;
	text = json_dumps(file, JSON_INDENT(1));
	rc = write_hashed(f, ARTIFACT_EXPERIMENT, "experiment_sha256", text, strlen(text));
	free(text);
	json_decref(file);
	if (rc < 0)
		return rc;
	text = csv_text(f->rows, &n);
	rc = write_hashed(f, ARTIFACT_TABLE, "summary_sha256", text, n);
	free(text);
	return rc;
}

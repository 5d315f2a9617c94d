#include "ctl/results/artifact_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print/format.h"
#include "proto/artifact.h"
#include "proto/base64.h"

enum { MARKER_BYTES = 16 << 10 }; /* gpt2d refuses longer ones too */

struct marker {
	const char *path;
	size_t folder; /* characters of path before the name */
	char text[MARKER_BYTES + 4];
};

static const char *path_of(const json_t *file)
{
	const char *path = json_string_value(json_object_get(file, "path"));

	return path ? path : "";
}

static bool is_marker(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, ARTIFACT_COMPLETE) == 0;
}

/* The value that follows " key=" is this one. */
static bool names(const char *text, const char *key, const char *value)
{
	const char *at = strstr(text, key);
	const size_t n = strlen(value);

	if (at == NULL || strncmp(at + strlen(key), value, n) != 0)
		return false;
	at += strlen(key) + n;
	return *at == ' ' || *at == '\n';
}

/* The marker's text, "" if it is not valid; *there: gpt2d still has it. */
static int read_marker(struct client *c, json_int_t run, int64_t bytes, struct marker *m,
	bool *there, struct ctl_error *e)
{
	const json_t *data;
	json_t *reply;
	size_t n = 0;
	int exit;

	m->text[0] = '\0';
	*there = true;
	if (bytes < 1 || bytes > MARKER_BYTES)
		return 0;
	exit = client_request(c, METHOD_ARTIFACT_READ,
		json_pack("{s:I, s:s, s:I, s:I}", "id", run, "path", m->path, "offset",
			(json_int_t)0, "bytes", (json_int_t)bytes),
		CLIENT_CHECK_S, &reply, e);
	if (exit == CTL_NO_SUCH_RUN || exit == CTL_USAGE) {
		ctl_error_clear(e);
		*there = false;
		return 0;
	}
	if (exit)
		return exit;
	data = json_object_get(reply, "data");
	if (!json_is_string(data) || json_string_length(data) > base64_length(MARKER_BYTES) ||
		base64_decode(json_string_value(data), json_string_length(data),
			(unsigned char *)m->text, &n) < 0)
		exit = ctl_error_set(
			e, CTL_TRANSPORT, "%.200s: gpt2d sent an invalid piece", m->path);
	m->text[exit ? 0 : n] = '\0';
	json_decref(reply);
	return exit;
}

/* Whether the file of this name beside the marker has another hash. */
static bool check_file(
	const json_t *by_path, const struct marker *m, const char *name, const char *key)
{
	char path[PATH_MAX];
	const char *sha256;
	json_t *file;

	if (snprintf(path, sizeof(path), "%.*s%s", (int)m->folder, m->path, name) >= PATH_MAX)
		return false;
	file = json_object_get(by_path, path);
	sha256 = json_string_value(json_object_get(file, "sha256"));
	if (sha256 == NULL || names(m->text, key, sha256))
		return false;
	json_object_set_new(
		file, "altered", json_string("its hash is not the one in " ARTIFACT_COMPLETE));
	return true;
}

/* Whether the size is not the one that the engine reported. */
static bool check_size(json_t *file)
{
	const int64_t announced = format_int(file, "announced", -1);
	const int64_t bytes = format_int(file, "bytes", announced);

	if (announced < 0 || bytes == announced)
		return false;
	if (json_object_get(file, "altered") == NULL)
		json_object_set_new(file, "altered",
			json_sprintf("%lld bytes, the engine wrote %lld", (long long)bytes,
				(long long)announced));
	return true;
}

int artifact_check_all(struct client *c, json_t *result, bool *altered, struct ctl_error *e)
{
	json_t *files = json_object_get(result, "files"), *by_path = json_object(), *file;
	const json_int_t run = format_int(result, "id", 0);
	struct marker m;
	bool there, found = false;
	int exit = 0;
	size_t i;

	json_array_foreach(files, i, file) {
		json_object_set(by_path, path_of(file), file);
		found |= json_object_get(file, "altered") != NULL;
	}
	json_array_foreach(files, i, file) {
		m.path = path_of(file);
		if (!is_marker(m.path) || !json_is_string(json_object_get(file, "sha256")) ||
			json_object_get(file, "altered") != NULL)
			continue;
		if (strlen(m.path) >= PATH_MAX)
			continue;
		m.folder = strlen(m.path) - strlen(ARTIFACT_COMPLETE);
		exit = read_marker(c, run, format_int(file, "bytes", 0), &m, &there, e);
		if (exit)
			break;
		if (!there)
			continue;
		found |= check_file(by_path, &m, ARTIFACT_METRICS, " metrics_sha256=");
		found |= check_file(by_path, &m, ARTIFACT_SPEC, " spec_sha256=");
	}
	json_array_foreach(files, i, file)
		found |= check_size(file);
	json_decref(by_path);
	if (exit == 0)
		*altered = found;
	return exit;
}

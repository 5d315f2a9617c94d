#include "daemon/config/diagnosis.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "daemon/config/paths.h"
#include "proto/text.h"
#include "proto/protocol.h"
#include "proto/version.h"

static const char *const verdict_names[] = {"ok", "warn", "fail"};

void diagnosis_add(struct diagnosis *d, const char *check, enum verdict verdict, const char *advice,
	const char *format, ...)
{
	char found[2 * PATH_MAX + 512];
	va_list args;

	va_start(args, format);
	vsnprintf(found, sizeof(found), format, args);
	va_end(args);
	text_shorten(found);
	text_clean(found);
	json_array_append_new(d->checks,
		json_pack("{ss ss ss ss?}", "check", check, "verdict", verdict_names[verdict],
			"found", found, "advice", advice));
	d->failed += verdict == VERDICT_FAIL;
}

static void check_gpt2d(struct diagnosis *d)
{
	diagnosis_add(d, "gpt2d", VERDICT_OK, NULL,
		"%s (build %s), protocol %d, libevent %s, jansson %s, SQLite %s", VERSION_RELEASE,
		version_build, PROTOCOL_VERSION, event_get_version(), jansson_version_str(),
		sqlite3_libversion());
}

static void check_settings(struct diagnosis *d)
{
	const struct settings *s = d->settings;
	char standard[4096] = "none";

	if (d->errors[0] != '\0') {
		diagnosis_add(d, "settings", VERDICT_FAIL,
			"gpt2d -n tells all that is wrong; what follows goes by the defaults",
			"%.*s", (int)strcspn(d->errors, "\n"), d->errors);
	} else if (s->config_file != NULL) {
		diagnosis_add(d, "settings", VERDICT_OK, NULL, "%s", s->config_file);
	} else {
		paths_config(standard, sizeof(standard));
		diagnosis_add(d, "settings", VERDICT_OK, NULL,
			"no file, all is as by default or by options (%s would be read)", standard);
	}
}

/* Outside of systemd neither is anything to worry about. */
static void check_systemd(struct diagnosis *d)
{
	uint64_t watchdog_us = 0;

	if (sd_booted() <= 0)
		diagnosis_add(d, "systemd", VERDICT_OK, NULL, "not this machine's");
	else if (sd_watchdog_enabled(0, &watchdog_us) > 0)
		diagnosis_add(d, "systemd", VERDICT_OK, NULL, "watchdog of %.1f s",
			(double)watchdog_us / 1e6);
	else
		diagnosis_add(d, "systemd", VERDICT_OK, NULL,
			"this is not run by it (a unit with Type=notify and WatchdogSec= is "
			"told of)");
}

static void print_line(const json_t *check, FILE *out)
{
	const char *advice = json_string_value(json_object_get(check, "advice"));

	fprintf(out, "%-4s  %-10s  %s%s%s\n", json_string_value(json_object_get(check, "verdict")),
		json_string_value(json_object_get(check, "check")),
		json_string_value(json_object_get(check, "found")), advice ? "; " : "",
		advice ? advice : "");
}

static int print(const struct diagnosis *d, bool json, FILE *out)
{
	json_t *all, *check;
	size_t i;
	int rc;

	if (!json) {
		json_array_foreach(d->checks, i, check)
			print_line(check, out);
		return 0;
	}
	all = json_pack("{ss ss sb sO}", "version", VERSION_RELEASE, "build", version_build, "ok",
		d->failed == 0, "checks", d->checks);
	rc = all == NULL || json_dumpf(all, out, JSON_INDENT(2)) < 0 ? -ENOMEM : 0;
	fputc('\n', out);
	json_decref(all);
	return rc;
}

int diagnosis_run(const struct settings *s, const char *errors, bool json, FILE *out)
{
	static void (*const checks[])(struct diagnosis * d) = {check_gpt2d, check_settings,
		diagnosis_engine, diagnosis_socket, diagnosis_state_dir, diagnosis_files,
		diagnosis_machine, check_systemd};
	struct diagnosis d = {.settings = s, .errors = errors, .checks = json_array()};
	int rc;

	if (d.checks == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&d);
	rc = print(&d, json, out);
	json_decref(d.checks);
	return rc < 0 ? rc : d.failed;
}

/* gpt2ctl version: the versions of this client and, if it runs, the daemon. */
#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/verbs/verb.h"
#include "proto/version.h"

static void print_versions(struct output *o, const json_t *versions)
{
	const json_t *side, *libraries, *library;
	char version[64];
	const char *name, *key;

	json_object_foreach((json_t *)versions, name, side) {
		if (!json_object_get(side, "version"))
			continue; /* null, or the error */
		fprintf(o->out.file, "%s ", name);
		members_print(
			o->out.file, side, "{version} (build {build}), protocol {protocol}\n");
		libraries = json_object_get(side, "libraries");
		json_object_foreach((json_t *)libraries, key, library)
			fprintf(o->out.file, "  %s %s\n", key,
				format_string(libraries, key, "?", version, sizeof(version)));
	}
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	json_t *versions, *reply = NULL;
	int exit;

	versions = json_pack("{s:{s:s, s:s, s:i, s:{s:s}}}", "gpt2ctl", "version", VERSION_RELEASE,
		"build", version_build, "protocol", PROTOCOL_VERSION, "libraries", "jansson",
		jansson_version_str());
	exit = client_ask(&ctl->link, METHOD_VERSION, json_object(), &reply, e);
	if (!exit)
		json_object_set_new(versions, "gpt2d", reply);
	/* without gpt2d there is still a version to print */
	if (exit == CTL_NO_DAEMON) {
		json_object_set_new(versions, "gpt2d", json_null());
		ctl_error_clear(e);
		exit = 0;
	}
	/* with --json one object, also after an error */
	if (exit && ctl->output.json)
		json_object_set_new(versions, "error", verb_error_json(e));
	output_print(&ctl->output, "version", versions, print_versions);
	if (exit)
		output_error(&ctl->output, e->message);
	ctl_error_clear(e);
	json_decref(versions);
	return exit;
}

const struct verb verb_version = {
	.name = "version",
	.args = "",
	.summary = "the versions of gpt2ctl and of the daemon",
	.text = "If no gpt2d runs, gpt2ctl prints its own version, and the exit status is 0.",
	.run = run,
};

/* gpt2ctl version: this client's, and the daemon's where one runs. */
#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"
#include "proto/version.h"

static int run(struct ctl *ctl, const struct arguments *args)
{
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *versions, *reply = NULL;
	int exit;

	versions = json_pack("{s:{s:s, s:s, s:i, s:{s:s}}}", "gpt2ctl", "version", VERSION_RELEASE,
		"build", version_build, "protocol", PROTOCOL_VERSION, "libraries", "jansson",
		jansson_version_str());
	exit = client_open(ctl, &c, &e);
	if (!exit)
		exit = client_request(c, METHOD_VERSION, json_object(), CLIENT_REPLY_S, &reply, &e);
	if (!exit)
		json_object_set_new(versions, "gpt2d", reply);
	client_close(c);
	/* without a daemon there is still a version to print */
	if (exit == CTL_NO_DAEMON) {
		json_object_set_new(versions, "gpt2d", json_null());
		ctl_error_clear(&e);
		exit = 0;
	}
	/* one object, whatever is wrong */
	if (exit && ctl->json) {
		json_object_set_new(versions, "error", ctl_error_json(&e));
		ctl_error_clear(&e);
	}
	ctl->output->version(ctl, versions);
	json_decref(versions);
	return exit && !ctl->json ? ctl_fail(ctl, &e) : exit;
}

const struct verb verb_version = {
	.name = "version",
	.args = "",
	.summary = "the versions of gpt2ctl and of the daemon",
	.text = "Without a daemon that is gpt2ctl's alone, and no error.",
	.run = run,
};

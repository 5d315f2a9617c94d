#include "ctl/link/greeting.h"

#include <string.h>

#include "ctl/print/format.h"
#include "proto/version.h"

json_t *greeting_params(void)
{
	return json_pack("{s:i, s:s, s:s}", "protocol", PROTOCOL_VERSION, "build", version_build,
		"client", "gpt2ctl");
}

static const char advice[] = "install both from one build, then restart that gpt2d: end it and "
			     "start it again";

static int mismatch(struct ctl_error *e, const json_t *daemon)
{
	const json_t *protocol = json_object_get(daemon, "protocol");
	char build[128];

	return ctl_error_set(e, CTL_VERSION_MISMATCH,
		"gpt2ctl speaks protocol %d (build %s), gpt2d speaks %lld (build %s)\n%s",
		PROTOCOL_VERSION, version_build, (long long)json_integer_value(protocol),
		format_string(daemon, "build", "unknown", build, sizeof(build)), advice);
}

int greeting_refused(struct ctl_error *e)
{
	char why[sizeof(e->message)];

	if (json_is_object(e->data) && json_object_get(e->data, "protocol"))
		return mismatch(e, e->data);
	memcpy(why, e->message, sizeof(why));
	return ctl_error_set(e, CTL_VERSION_MISMATCH, "%.600s\n%s", why, advice);
}

int greeting_check(const json_t *hello, struct ctl_error *e)
{
	const json_t *protocol = json_object_get(hello, "protocol");

	if (!json_is_integer(protocol))
		return ctl_error_set(e, CTL_TRANSPORT, "hello: gpt2d named no protocol version");
	if (json_integer_value(protocol) != PROTOCOL_VERSION)
		return mismatch(e, hello);
	return 0;
}

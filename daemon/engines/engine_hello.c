#include "daemon/engines/engine_hello.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/process.h"
#include "proto/protocol.h"
#include "proto/version.h"

void engine_hello_check_build(
	const struct engine_hello *started, json_t *params, char *why, size_t why_bytes)
{
	json_t *build = json_object_get(params, "build");
	json_t *protocol = json_object_get(params, "protocol");
	char ours[400];

	why[0] = '\0';
	process_describe(getpid(), ours, sizeof(ours));
	if (json_integer_value(protocol) != PROTOCOL_VERSION)
		snprintf(why, why_bytes,
			"speaks protocol %lld, gpt2d speaks %d (engine: %.300s, pid %d; gpt2d: "
			"%s); " ENGINE_HELLO_CURE,
			(long long)json_integer_value(protocol), PROTOCOL_VERSION, started->program,
			(int)started->pid, ours);
	else if (json_is_string(build) && strcmp(json_string_value(build), version_build) != 0)
		snprintf(why, why_bytes,
			"is build %.64s, gpt2d is build %s (engine: %.300s, pid %d; gpt2d: "
			"%s); " ENGINE_HELLO_CURE,
			json_string_value(build), version_build, started->program,
			(int)started->pid, ours);
}

void engine_hello_check(
	const struct engine_hello *started, json_t *params, char *why, size_t why_bytes)
{
	const char *role = json_string_value(json_object_get(params, "role"));
	json_t *rank = json_object_get(params, "rank");
	json_t *device = json_object_get(params, "device");
	const char *backend = json_string_value(json_object_get(device, "backend"));
	const char *asked = started->backend;

	engine_hello_check_build(started, params, why, why_bytes);
	if (why[0] != '\0')
		return;
	if (role == NULL || strcmp(role, "rank") != 0 || json_integer_value(rank) != started->rank)
		snprintf(why, why_bytes, "does not say that it is this rank");
	else if (asked != NULL && (backend == NULL || strcmp(backend, asked) != 0))
		snprintf(why, why_bytes, "computes on %.32s, the setting device asks for %s",
			backend ? backend : "what it does not say", asked);
}

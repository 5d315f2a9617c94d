#include "ctl/verbs/queued.h"

#include <stdio.h>
#include <string.h>

#include "ctl/print/text.h"
#include "proto/host/clock.h"

bool queued_take(struct queued *q, const json_t *outlook)
{
	const char *waiting = json_string_value(json_object_get(outlook, "waiting"));
	const bool looked = q->looked;
	char code[sizeof(q->code)];

	q->look_ns = clock_mono_ns() + QUEUED_LOOK_S * CLOCK_S_NS;
	q->looked = true;
	snprintf(code, sizeof(code), "%s", waiting ? waiting : "");
	code[strcspn(code, ":")] = '\0';
	if (code[0] == '\0' || strcmp(code, q->code) == 0 ||
		(!looked && !text_waits(waiting)))
		return false;
	memcpy(q->code, code, sizeof(code));
	return true;
}

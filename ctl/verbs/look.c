#include "ctl/verbs/look.h"

#include "proto/host/clock.h"

struct client *look_begin(const struct ctl *ctl)
{
	struct ctl_error e = {0};
	struct client *c = NULL;

	client_open_until(ctl, clock_mono_ns() + LOOK_S * CLOCK_S_NS, &c, &e);
	ctl_error_clear(&e);
	return c;
}

json_t *look_of(struct client *c, int64_t id)
{
	struct ctl_error e = {0};
	json_t *shown = NULL;

	if (c && !client_lost(c))
		client_request(c, METHOD_SHOW,
			json_pack("{s:I, s:i}", "id", (json_int_t)id, "limit", 1), LOOK_S, &shown,
			&e);
	ctl_error_clear(&e);
	return shown;
}

json_t *look_once(const struct ctl *ctl, int64_t id)
{
	struct client *c = look_begin(ctl);
	json_t *shown = look_of(c, id);

	client_close(c);
	return shown;
}

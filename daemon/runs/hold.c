#include "daemon/runs/hold.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/clock.h"
#include "daemon/config/log.h"
#include "proto/state_files.h"
#include "daemon/store/record.h"
#include "proto/host/memory.h"

static const struct {
	const char *name;
	bool durable;
	const char *end; /* what ends the hold */
} kinds[HOLDS] = {
	[HOLD_ROOM] = {"room", false,
		"gpt2d tries to write there each second, and starts runs when it can"},
	[HOLD_DRAINED] = {"drained", true, "gpt2ctl resume lets runs start"},
	[HOLD_RELEASED] = {"released", true, "gpt2ctl warm takes the engines again"},
	[HOLD_MEMBER] = {"member", false, "the leader trains the runs of its own queue"},
	[HOLD_STOPPING] = {"stopping", false,
		"gpt2d is stopping; the run starts when gpt2d runs again"},
};

enum { PROBE_MIN = 1 << 20, PROBE_MAX = 1 << 30 };

struct held {
	struct record_hold record; /* since_ns 0: not set */
	bool lifting;              /* its end is being written */
	int writes;                /* pending in the store */
	char why[1024];            /* hold_reason; empty: not set */
};

struct holds {
	struct hold_options options;
	struct held held[HOLDS];
	struct event *probe_timer;
	bool probing;
	/*
	 * Bytes that must fit before HOLD_ROOM ends. They double each time a run lacks room again,
	 * so that a nearly full disk does not start and stop the same run for ever.
	 */
	int64_t probe_bytes;
};

/* A request that the store is writing. */
struct change {
	struct holds *holds;
	enum hold hold;
	struct record_hold record; /* the new state of the hold */
	bool already;
	void (*done)(void *arg, int rc, bool already);
	void *arg;
};

bool hold_is_set(const struct holds *holds, enum hold hold)
{
	return holds->held[hold].record.since_ns != 0;
}

bool hold_is_stored(const struct holds *holds, enum hold hold)
{
	return hold_is_set(holds, hold) && holds->held[hold].writes == 0;
}

bool hold_none(const struct holds *holds)
{
	for (enum hold i = 0; i < HOLDS; i++)
		if (hold_is_set(holds, i))
			return false;
	return true;
}

json_t *hold_json(const struct holds *holds, enum hold hold)
{
	const struct record_hold *r = &holds->held[hold].record;

	if (r->since_ns == 0)
		return json_null();
	return json_pack("{so sI ss?}", "since", clock_json(r->since_ns), "uid", (json_int_t)r->uid,
		"reason", r->reason[0] ? r->reason : NULL);
}

const char *hold_reason(const struct holds *holds, enum hold hold)
{
	if (hold < HOLDS)
		return hold_is_set(holds, hold) ? holds->held[hold].why : NULL;
	while (hold-- > 0)
		if (hold_is_set(holds, hold))
			return holds->held[hold].why;
	return NULL;
}

static void describe(struct held *h, enum hold hold)
{
	const struct record_hold *r = &h->record;
	char at[CLOCK_TEXT_BYTES], by[32] = "";

	if (hold == HOLD_STOPPING) {
		snprintf(h->why, sizeof(h->why), "%s: %s", kinds[hold].name, kinds[hold].end);
		return;
	}
	if (kinds[hold].durable)
		snprintf(by, sizeof(by), " by uid %u", (unsigned)r->uid);
	clock_text(r->since_ns, at);
	/* whole seconds: "2026-01-08 19:50:57Z" */
	snprintf(h->why, sizeof(h->why), "%s: since %.10s %.8sZ%s%s%s; %s", kinds[hold].name, at,
		at + 11, by, r->reason[0] ? ": " : "", r->reason, kinds[hold].end);
}

static void set(struct holds *holds, enum hold hold, const struct record_hold *record)
{
	struct held *h = &holds->held[hold];

	h->record = *record;
	h->lifting = false;
	describe(h, hold);
	holds->options.changed(holds->options.arg);
}

static void unset(struct holds *holds, enum hold hold)
{
	set(holds, hold, &(struct record_hold){.what = kinds[hold].name});
}

/* ---- drained, released ---- */

static void log_stored(const struct record_hold *record)
{
	log_write(LOG_INFO, "%s%s%s%s", record->since_ns ? "" : "no longer ", record->what,
		record->reason[0] ? ": " : "", record->reason);
}

static void apply_stored(struct holds *holds, const struct change *c)
{
	struct held *h = &holds->held[c->hold];
	const bool lift = c->record.since_ns == 0;

	if (lift && h->lifting) { /* else somebody has set the hold again */
		unset(holds, c->hold);
		log_stored(&c->record);
	} else if (!lift && !hold_is_set(holds, c->hold)) { /* an earlier write had failed */
		set(holds, c->hold, &c->record);
		log_stored(&c->record);
	} else if (!lift && !c->already) {
		log_stored(&c->record);
	}
}

static void on_stored(void *arg, int rc)
{
	struct change *c = arg;
	struct holds *holds = c->holds;
	struct held *h = &holds->held[c->hold];

	h->writes--;
	if (rc == 0) {
		apply_stored(holds, c);
	} else {
		h->lifting = false;
		if (c->record.since_ns != 0 && hold_is_set(holds, c->hold))
			unset(holds, c->hold);
	}
	c->done(c->arg, rc, c->already);
	free(c);
}

static void store_change(struct holds *holds, const struct change *change)
{
	struct change *c = memory_zeroed(1, sizeof(*c));

	*c = *change;
	holds->held[c->hold].writes++;
	record_hold_set(holds->options.store, &c->record, on_stored, c);
}

void hold_place(struct holds *holds, enum hold hold, uid_t uid, const char *reason,
	void (*done)(void *arg, int rc, bool already), void *arg)
{
	struct held *h = &holds->held[hold];
	struct change change = {
		.holds = holds,
		.hold = hold,
		.already = hold_is_set(holds, hold) && !h->lifting,
		.done = done,
		.arg = arg,
	};

	if (!change.already) {
		change.record = (struct record_hold){
			.what = kinds[hold].name, .since_ns = clock_utc_ns(), .uid = uid};
		snprintf(change.record.reason, sizeof(change.record.reason), "%s",
			reason ? reason : "");
		set(holds, hold, &change.record);
	} else if (h->writes > 0) { /* that write may fail, and this request gets its own reply */
		change.record = h->record;
	} else {
		done(arg, 0, true);
		return;
	}
	store_change(holds, &change);
}

void hold_lift(struct holds *holds, enum hold hold, void (*done)(void *arg, int rc, bool already),
	void *arg)
{
	const struct change change = {
		.holds = holds,
		.hold = hold,
		.record = {.what = kinds[hold].name},
		.done = done,
		.arg = arg,
	};

	if (!hold_is_set(holds, hold)) {
		done(arg, 0, true);
		return;
	}
	holds->held[hold].lifting = true;
	store_change(holds, &change);
}

/* ---- member, stopping ---- */

void hold_place_member(struct holds *holds, const char *leader)
{
	struct record_hold record = {.what = kinds[HOLD_MEMBER].name, .since_ns = clock_utc_ns()};

	snprintf(record.reason, sizeof(record.reason), "of the leader %s", leader);
	set(holds, HOLD_MEMBER, &record);
}

void hold_place_stopping(struct holds *holds)
{
	const struct record_hold record = {
		.what = kinds[HOLD_STOPPING].name, .since_ns = clock_utc_ns()};

	set(holds, HOLD_STOPPING, &record);
}

/* ---- room: a full, read-only or broken disk ---- */

bool hold_is_room_reason(const char *reason)
{
	return strncmp(reason, "enospc: ", strlen("enospc: ")) == 0 ||
		strncmp(reason, "io: ", strlen("io: ")) == 0;
}

/* In the store's thread: whether the runs' directory takes probe_bytes. */
static int probe_work(void *arg)
{
	const struct holds *holds = arg;
	static const char block[4096];
	char path[PATH_MAX];
	int fd, rc = 0;

	if (snprintf(path, sizeof(path), "%s/" STATE_RUNS "/.probe", holds->options.state_dir) >=
		PATH_MAX)
		return -ENAMETOOLONG;
	if (store_gone(holds->options.store))
		return -ESTALE;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	unlink(path);
	if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
		rc = -ENOSPC;
	if (rc == 0)
		rc = -posix_fallocate(fd, 0, holds->probe_bytes);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static void on_probed(void *arg, int rc)
{
	struct holds *holds = arg;

	holds->probing = false;
	if (rc < 0 || !hold_is_set(holds, HOLD_ROOM))
		return;
	event_del(holds->probe_timer);
	log_write(LOG_INFO, "no longer room: %s/" STATE_RUNS " can be written again",
		holds->options.state_dir);
	unset(holds, HOLD_ROOM);
}

static void on_probe_timer(evutil_socket_t fd, short what, void *arg)
{
	struct holds *holds = arg;

	if (holds->probing)
		return;
	holds->probing = true;
	record_files(holds->options.store, probe_work, on_probed, holds);
}

void hold_place_room(struct holds *holds, const struct run *run, const char *reason)
{
	static const struct timeval second = {1, 0};
	struct record_hold record = {.what = kinds[HOLD_ROOM].name, .since_ns = clock_utc_ns()};

	if (hold_is_set(holds, HOLD_ROOM))
		return;
	snprintf(record.reason, sizeof(record.reason), "run %lld: %.220s", (long long)run->id,
		reason);
	holds->probe_bytes = holds->probe_bytes == 0 ? PROBE_MIN : 2 * holds->probe_bytes;
	if (holds->probe_bytes > PROBE_MAX)
		holds->probe_bytes = PROBE_MAX;
	log_write(LOG_WARNING, "%s: %s; %s", record.what, record.reason, kinds[HOLD_ROOM].end);
	event_add(holds->probe_timer, &second);
	set(holds, HOLD_ROOM, &record);
}

void hold_observe(void *arg, struct run *run, enum lifecycle_event event)
{
	struct holds *holds = arg;

	if (event == LIFECYCLE_STORED && run->state == RUN_DONE && !hold_is_set(holds, HOLD_ROOM))
		holds->probe_bytes = 0;
}

/* ---- create, destroy ---- */

int hold_create(const struct hold_options *options, struct holds **out)
{
	struct holds *holds = memory_zeroed(1, sizeof(*holds));
	int rc = 0;

	holds->options = *options;
	holds->probe_timer = event_new(options->base, -1, EV_PERSIST, on_probe_timer, holds);
	for (enum hold i = 0; i < HOLDS; i++) {
		holds->held[i].record.what = kinds[i].name;
		if (!kinds[i].durable)
			continue;
		rc = record_hold_read(options->store, &holds->held[i].record);
		if (rc < 0)
			break;
		describe(&holds->held[i], i);
	}
	*out = holds;
	return rc;
}

void hold_destroy(struct holds *holds)
{
	if (holds == NULL)
		return;
	event_free(holds->probe_timer);
	free(holds);
}

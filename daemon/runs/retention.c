#include "daemon/runs/retention.h"

#include <stdio.h>
#include <string.h>

#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "proto/state_files.h"

enum { BATCH = 16 };

void retention_init(struct retention *r, const char *state_dir, int64_t last_ns)
{
	*r = (struct retention){0};
	snprintf(r->runs, sizeof(r->runs), "%s/" STATE_RUNS, state_dir);
	if (stat(r->runs, &r->at_start) < 0)
		r->at_start = (struct stat){0};
	clock_trust_begin(&r->clock, last_ns, clock_boot_ns(), clock_utc_ns());
}

int retention_last_now(struct store *store, int64_t *last_ns)
{
	return record_last_change_now(store, clock_utc_ns() - CLOCK_DOUBT_S * CLOCK_S_NS, last_ns);
}

static void say_leap(const struct retention *r, int64_t utc_ns)
{
	char now[CLOCK_TEXT_BYTES], then[CLOCK_TEXT_BYTES];

	clock_text(utc_ns, now);
	clock_text(r->clock.expected_ns, then);
	log_write(LOG_WARNING,
		"retain_days: the clock is at %s, %s was expected by %s: no run is removed for its"
		" age until gpt2d has run for %d h, or the clock is back; gpt2ctl prune"
		" --older-than removes them at once",
		now, then,
		r->clock.at_start ? "the last change of a run before this start"
				  : "what has passed since the last look at it",
		CLOCK_DOUBT_S / 3600);
}

static void look_at_runs(struct retention *r)
{
	struct stat now;
	bool moved = stat(r->runs, &now) < 0 || now.st_dev != r->at_start.st_dev ||
		now.st_ino != r->at_start.st_ino;

	if (moved && !r->runs_moved)
		log_write(LOG_WARNING,
			"%s: not the folder that was there at the start: is a disk not mounted any"
			" more? retain_runs and retain_days wait until it is there again, or gpt2d"
			" is started again",
			r->runs);
	else if (!moved && r->runs_moved)
		log_write(LOG_INFO, "%s: there again", r->runs);
	r->runs_moved = moved;
}

void retention_look(struct retention *r, const struct settings *s)
{
	const int64_t utc_ns = clock_utc_ns();
	bool believed;

	if (s->retain_runs > 0 || s->retain_days > 0)
		look_at_runs(r);
	clock_trust_look(&r->clock, clock_boot_ns(), utc_ns);
	believed = clock_trust_has(&r->clock);
	if (s->retain_days > 0 && !believed && !r->said) {
		say_leap(r, utc_ns);
		r->said = true;
	} else if (believed && r->said) {
		log_write(LOG_INFO, "retain_days: the clock is believed again");
		r->said = false;
	}
}

bool retention_select(struct retention *r, const struct settings *s, struct record_prunable *what)
{
	const int64_t days = clock_trust_has(&r->clock) ? s->retain_days : 0;

	*what = (struct record_prunable){.keep = -1,
		.ended_before_ns = INT64_MAX,
		.uid = -1,
		.state = -1,
		.after = r->after,
		.limit = BATCH};
	if (r->runs_moved || (s->retain_runs == 0 && days == 0))
		return false;
	/* where both are set: retain_runs, and soon after it retain_days */
	r->by_age = days > 0 && (s->retain_runs == 0 || r->by_age_next);
	r->by_age_next = days > 0 && !r->by_age;
	if (r->by_age)
		what->ended_before_ns = clock_utc_ns() - days * 86400 * CLOCK_S_NS;
	else
		what->keep = s->retain_runs;
	return true;
}

void retention_leave(struct retention *r, const char *dir)
{
	snprintf(r->left, sizeof(r->left), "%s", dir);
}

static void say_left(struct retention *r)
{
	if (r->left[0] != '\0' && strcmp(r->left, r->left_said) != 0)
		log_write(LOG_WARNING,
			"retain_runs and retain_days leave runs whose folders are not there (the"
			" last is %s): is a disk not mounted? gpt2ctl prune --forget removes what"
			" is known of them",
			r->left);
	memcpy(r->left_said, r->left, sizeof(r->left));
	r->left[0] = '\0';
}

bool retention_again(struct retention *r, int64_t reached)
{
	r->after = reached;
	if (reached > 0)
		r->by_age_next = r->by_age;
	else if (!r->by_age_next)
		say_left(r);
	return reached > 0 || r->by_age_next;
}

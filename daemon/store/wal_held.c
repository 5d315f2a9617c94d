#include "daemon/store/wal_held.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/host/clock.h"
#include "daemon/daemon.h"
#include "daemon/store/database.h"
#include "daemon/store/lock_holders.h"
#include "daemon/config/log.h"
#include "proto/state_files.h"
#include "daemon/store/store.h"

void wal_watch_init(struct wal_watch *w)
{
	*w = (struct wal_watch){.looked_ns = 0};
	pthread_mutex_init(&w->lock, NULL);
}

void wal_watch_destroy(struct wal_watch *w)
{
	pthread_mutex_destroy(&w->lock);
}

bool wal_watch_note(struct wal_watch *w, const struct database *db)
{
	const bool is_held = db->held_pages > 0;
	struct wal_held now = {.since_ns = 0};
	struct stat st;
	bool was_held = w->held.since_ns != 0; /* only this thread changes it */

	/* who holds it may have changed, which is not asked after every commit */
	if (is_held == was_held && (!is_held || clock_mono_ns() < w->looked_ns + CLOCK_S_NS))
		return false;
	if (is_held) {
		snprintf(now.path, sizeof(now.path), "%s-wal", db->path);
		now.since_ns = was_held ? w->held.since_ns : clock_utc_ns();
		now.bytes = stat(now.path, &st) == 0 ? st.st_size : 0;
		lock_holders_advise_reading(db->path, now.advice, sizeof(now.advice));
		w->looked_ns = clock_mono_ns();
	}
	pthread_mutex_lock(&w->lock);
	w->held = now;
	pthread_mutex_unlock(&w->lock);
	return is_held != was_held;
}

bool wal_watch_look(struct wal_watch *w, struct wal_held *out)
{
	bool is_held;

	pthread_mutex_lock(&w->lock);
	is_held = w->held.since_ns != 0;
	if (is_held)
		*out = w->held;
	pthread_mutex_unlock(&w->lock);
	return is_held;
}

void wal_held_tell(struct daemon *d)
{
	struct wal_held held;
	const bool is_held = wal_watch_look(store_wal(d->store), &held);

	if (is_held == d->wal_held)
		return;
	d->wal_held = is_held;
	if (is_held)
		log_write(LOG_WARNING,
			"%s: has %lld MB and grows, as another process has begun to read it and"
			" does not end; %s",
			held.path, (long long)(held.bytes / 1000000), held.advice);
	else
		log_write(LOG_INFO, "%s/" STATE_DATABASE "-wal: grows no more, nobody holds it",
			d->state_dir);
}

json_t *wal_held_json(const struct daemon *d)
{
	struct wal_held held;

	if (!wal_watch_look(store_wal(d->store), &held))
		return json_null();
	return json_pack("{ss sI so ss}", "path", held.path, "bytes", (json_int_t)held.bytes,
		"since", clock_json(held.since_ns), "advice", held.advice);
}

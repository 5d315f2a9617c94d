#include "engine/data/data_identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "proto/host/clock.h"

struct file {
	json_int_t dev, ino, bytes, modified_ns;
};

static struct file file_of(const struct dataset *d)
{
	return (struct file){.dev = (json_int_t)d->dev,
		.ino = (json_int_t)d->ino,
		.bytes = (json_int_t)d->file_bytes,
		.modified_ns = (json_int_t)d->modified.tv_sec * CLOCK_S_NS + d->modified.tv_nsec};
}

int data_identity_add(json_t *identity, const struct dataset *d)
{
	struct file f = file_of(d);

	if (d->format == DATASET_SYNTHETIC)
		return 0;
	return json_object_set_new(identity, d->path,
		       json_pack("{sI sI sI sI}", "dev", f.dev, "ino", f.ino, "bytes", f.bytes,
			       "modified_ns", f.modified_ns)) < 0
		? -ENOMEM
		: 0;
}

/* "5400 bytes, of 2026-01-08T19:50:57.123456789Z, inode 12" */
static void describe(const struct file *f, char *out, size_t out_bytes)
{
	time_t s = (time_t)(f->modified_ns / CLOCK_S_NS);
	char at[32] = "?";
	struct tm utc;

	if (gmtime_r(&s, &utc) != NULL)
		strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(out, out_bytes, "%" PRId64 " bytes, of %s.%09" PRId64 "Z, inode %" PRIu64,
		(int64_t)f->bytes, at, (int64_t)(f->modified_ns % CLOCK_S_NS), (uint64_t)f->ino);
}

int data_identity_check(
	const json_t *known, const struct dataset *d, char *error, size_t error_bytes)
{
	json_t *entry = json_object_get(known, d->path);
	struct file then, now = file_of(d);
	char was[128], is[128];

	if (d->format == DATASET_SYNTHETIC || entry == NULL)
		return 0;
	if (json_unpack(entry, "{sI sI sI sI}", "dev", &then.dev, "ino", &then.ino, "bytes",
		    &then.bytes, "modified_ns", &then.modified_ns) < 0) {
		snprintf(error, error_bytes,
			"%s: segment.start has no {dev, ino, bytes, modified_ns} of it", d->path);
		return -EINVAL;
	}
	if (then.dev == now.dev && then.ino == now.ino && then.bytes == now.bytes &&
		then.modified_ns == now.modified_ns)
		return 0;
	describe(&then, was, sizeof(was));
	describe(&now, is, sizeof(is));
	snprintf(error, error_bytes,
		"%s: not the file that the run's first segments trained on: %s then; %s now;"
		" leave it alone until the run has ended, and submit the run again",
		d->path, was, is);
	return -ESTALE;
}

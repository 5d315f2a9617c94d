/*
 * writer.h: rank 0's files, written by a separate thread while the next segment runs. For a trained
 * segment it sends segment.artifact for each file and segment.done. A segment that failed or was
 * cancelled after its first step gets the files without the marker, then segment.failed or
 * segment.cancelled.
 */
#ifndef GPT2D_ENGINE_WRITER_H
#define GPT2D_ENGINE_WRITER_H

#include "engine/link.h"
#include "engine/segment.h"
#include "kernels/kernels.h"

struct writer;

struct writer_options {
	struct link *link;
	struct k_device_info device;
	const char *collectives; /* library; NULL with one rank */
	int threads;             /* that compute, per rank */
	double peak_tflops;      /* of a device; 0: as its card has it */
};
/* 0 or a negative errno. What options points to outlives the writer. */
int writer_create(const struct writer_options *options, struct writer **out);
/* Finishes what is queued. Takes NULL. */
void writer_destroy(struct writer *w);

/*
 * Waits until only a few segments are left to write. Call it before gpt2d learns that another
 * segment may start, because the other ranks would wait for this one and report it. A wait for the
 * disk is logged after five seconds.
 */
void writer_wait(struct writer *w);
/* Takes the segment. */
void writer_add(struct writer *w, struct segment *s);

#endif

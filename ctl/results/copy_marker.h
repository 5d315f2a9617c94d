/*
 * copy_marker.h: RUN_COMPLETE.txt in a copy: it says that what is in its folder and below it is
 * whole, so it comes last, and one of an earlier copy goes before that is no longer true.
 *
 * dir is the folder that is copied to, files and result are the reply to "artifacts" as in
 * artifact_copy.h, path is a file's in it.
 */
#ifndef GPT2D_CTL_RESULTS_COPY_MARKER_H
#define GPT2D_CTL_RESULTS_COPY_MARKER_H

#include <jansson.h>
#include <stdbool.h>

enum { COPY_MARKER_LAST_TURN = 2 };

/* 0: no marker; 1: a segment's; then the run's. */
int copy_marker_turn(const char *path);
/* The first of files with the key `lacking` in the marker's folder or below it; NULL: none. */
const char *copy_marker_lacks(const json_t *files, const char *marker, const char *lacking);
/*
 * Before path is written: the markers that are there beside it and above go, where they are this
 * run's, or path replaces another file, which they may speak for. They are off the disk then. 0, or
 * a negative errno.
 */
int copy_marker_drop(int dir, const json_t *files, const char *path, bool replaces);
/*
 * After all it speaks for has been tried, and it is not copied: this run's marker goes where an
 * earlier copy has left it with files that it was not written for. Whether it did.
 */
bool copy_marker_remove_false(int dir, const json_t *result, const char *marker);

#endif

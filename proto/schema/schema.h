/*
 * schema.h: what JSON objects hold, one row per member, and from the rows their JSON Schema and
 * their section of a manual page. schema_messages.c has what gpt2d sends, schema_artifacts.c what a
 * run leaves behind, ctl/print/schema_outputs.c what gpt2ctl prints.
 *
 * A table is a flat list: the row of an object (its type begins with '#'), then the rows of its
 * members, and so on. No object may have a member that has no row. Types of members:
 *
 *   int count real text bool null time sha256 any object      (count: a whole number from 0)
 *   NAME       the object of that name, in any table of the same document
 *   =a,b       one of these texts
 *   [T] {T}    an array of T, an object whose members are all T
 *   T|U        either; |null is the common one
 *   ?T         the member may be absent
 */
#ifndef GPT2D_PROTO_SCHEMA_SCHEMA_H
#define GPT2D_PROTO_SCHEMA_SCHEMA_H

#include <stdbool.h>
#include <stdio.h>

#define SCHEMA_OBJECT "#object" /* part of others */
#define SCHEMA_OUTPUT "#output" /* a line of gpt2ctl --json, its kind is the name */
#define SCHEMA_EVENT  "#event"  /* of a followed run: a notification, and such a line too */
#define SCHEMA_FILE   "#file"   /* a file, or a line of it taken apart */

struct schema_row {
	const char *key; /* NULL ends a table */
	const char *type;
	const char *help; /* "" where the name says it, units included */
};

struct schema_document {
	const char *title;
	const struct schema_row *const *tables; /* NULL ends them */
	bool lines;        /* outputs and events as gpt2ctl prints them, not as gpt2d sends them */
	int lines_version; /* their member "schema" */
};

extern const struct schema_row schema_messages[], schema_events[], schema_artifacts[];
/* The events as gpt2d sends them; the files of a run's folder. */
extern const struct schema_document schema_event_document, schema_artifact_document;

/*
 * JSON Schema 2020-12: any of the outputs, events or files; each is under "$defs" by its name. 0,
 * or -EINVAL when a type is wrong or out of memory.
 */
int schema_print(const struct schema_document *document, FILE *out);

/* mdoc: a subsection for each object, in the order of the tables. */
void schema_print_man(const struct schema_document *document, FILE *out);

#endif

/*
 * schema.h: what messages and files hold, one row per member, and from the rows their JSON Schema
 * and their section of a manual page. schema_messages.c has every message, schema_nodes.c those
 * between nodes, schema_artifacts.c what a run leaves behind,
 * ctl/print/schema_outputs.c what only gpt2ctl prints. The tests refuse a message with a member
 * that has no row.
 *
 * A table is a flat list: the row of an object (its type begins with '#'), then the rows of its
 * members, and so on. Types of members:
 *
 *   int count real text bool null time sha256 any object (count: a whole number from 0)
 *   NAME the object of that name, in any table of the same document
 *   =a,b one of these texts
 *   [T] {T} an array of T, an object whose members are all T
 *   T|U either; |null is the common one
 *   ?T the member may be absent
 *   .T only in the message, not in gpt2ctl's output
 *
 * The row {"...", NAME, ""} stands for all members of the object or reply NAME.
 */
#ifndef GPT2D_PROTO_SCHEMA_SCHEMA_H
#define GPT2D_PROTO_SCHEMA_SCHEMA_H

#include <stdbool.h>
#include <stdio.h>

#define SCHEMA_OBJECT  "#object"  /* part of other objects */
#define SCHEMA_REQUEST "#request" /* the params of a client's request */
#define SCHEMA_REPLY   "#reply"   /* its result */
#define SCHEMA_PRINTED "#printed" /* its result, also a line of gpt2ctl --json */
/* of a followed run: a notification, also a line of gpt2ctl --json */
#define SCHEMA_EVENT  "#event"
#define SCHEMA_ORDER  "#order"  /* the params of what gpt2d sends to an engine or a member */
#define SCHEMA_REPORT "#report" /* the params of what an engine or a member sends to gpt2d */
#define SCHEMA_FILE   "#file"   /* a file, or a parsed line of it */
#define SCHEMA_OUTPUT "#output" /* a line of gpt2ctl --json; its kind is the name */
/* members that gpt2ctl adds to the reply or object of this name */
#define SCHEMA_MORE "#more"

struct schema_row {
	const char *key; /* NULL ends a table */
	const char *type;
	const char *help; /* "" if the name is clear, unit included */
};

struct schema_document {
	const char *title;
	const struct schema_row *const *tables; /* NULL ends them */
	bool lines;                             /* as gpt2ctl prints it, not as gpt2d sends it */
	int lines_version;                      /* their member "schema" */
};

extern const struct schema_row schema_messages[], schema_events[], schema_objects[], schema_nodes[],
	schema_manifest[], schema_checkpoints[], schema_weights[], schema_comparison[];
extern const struct schema_document schema_message_document, schema_artifact_document;

/* Whether the document has the object that begins at head. */
bool schema_has(const struct schema_document *document, const struct schema_row *head);
/* Calls visit for each member of the object at head, up to the first result other than 0. */
int schema_visit(const struct schema_document *document, const struct schema_row *head,
	int (*visit)(const struct schema_row *member, void *arg), void *arg);

/*
 * JSON Schema 2020-12 of the messages, lines or files. Each is under "$defs" by its name; a request
 * and messages between gpt2d and engines as "NAME params", a reply as "NAME result". 0, or -EINVAL
 * if a type is invalid.
 */
int schema_print(const struct schema_document *document, FILE *out);

#endif

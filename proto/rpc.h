/*
 * rpc.h: builds and parses JSON-RPC 2.0 objects, one per line; no I/O. Refuses batches and
 * duplicate keys; params must be an object.
 */
#ifndef GPT2D_PROTO_RPC_H
#define GPT2D_PROTO_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESULT, RPC_ERROR };

struct rpc_message {
	enum rpc_kind kind;
	json_t *root;       /* owns the rest; released by rpc_clear */
	json_t *id;         /* request, result, error; NULL otherwise (error: may be JSON null) */
	const char *method; /* request, notification */
	json_t *params;     /* request, notification: an object, empty if absent */
	json_t *result;     /* result */
	int code;           /* error */
	const char *error;  /* error */
	json_t *data;       /* error; may be NULL */
};

/*
 * 0 and *out, or the JSON-RPC error code for the reply (protocol.h), with the reason in error. id
 * (unless NULL) gets a new reference to the id for the reply, JSON null if there is none.
 */
int rpc_parse(const char *line, size_t n, struct rpc_message *out, json_t **id, char *error,
	size_t error_bytes);
void rpc_clear(struct rpc_message *m);

/*
 * Complete lines: malloc'd, with a newline, length in *n. They take the reference of params, result
 * and data. NULL without memory.
 */
char *rpc_request(json_int_t id, const char *method, json_t *params, size_t *n);
char *rpc_notification(const char *method, json_t *params, size_t *n);
char *rpc_result(json_t *id, json_t *result, size_t *n); /* borrows id */
char *rpc_error(json_t *id, int code, const char *message, json_t *data, size_t *n);

/* An integer of an object; standard where it is absent. */
int64_t rpc_integer(const json_t *object, const char *key, int64_t standard);

/* A text of an object; "" where it is absent. */
const char *rpc_text(const json_t *object, const char *key);

/* A JSON real, or null if the value is not finite. */
json_t *rpc_real(double value);

#endif

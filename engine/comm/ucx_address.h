/*
 * ucx_address.h: the printable address of a rank, and the comparison of two.
 *
 * An address is base64 of lines "key value", an empty line, and UCX's own worker address. The lines
 * have the UCX version and the settings that two processes must share. Different values corrupt
 * memory in UCX (UCX_PROTO_ENABLE, 1.13 and 1.18) instead of failing, so they are compared before
 * an endpoint is created.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_ADDRESS_H
#define GPT2D_ENGINE_COMM_UCX_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/comm/interface.h"

enum { UCX_ADDRESS_SETTINGS_MAX = 1024, UCX_ADDRESS_HOST_MAX = 96 };

struct ucx_address {
	int rank, world;
	uint64_t nonce; /* random for each process, to recognise an earlier process */
	int64_t pid;
	char host[UCX_ADDRESS_HOST_MAX]; /* machine and pid namespace of pid */
	/* its network address, for messages: "10.0.0.1%eth0"; "-": none */
	char at[INTERFACE_ADDRESS_BYTES];
	char settings[UCX_ADDRESS_SETTINGS_MAX]; /* "key value\n" each; equal among all ranks */
	void *worker; /* UCX's address; owned by the code that fills or parses this */
	size_t worker_bytes;
};

/* Printable form, from malloc. */
char *ucx_address_format(const struct ucx_address *a);

/* 0, or -EINVAL if the text is not an address. out->worker is from malloc. */
int ucx_address_parse(const char *text, struct ucx_address *out);

/*
 * 0, or -EPROTO with error naming the first setting that differs and both its values
 * ("UCX_PROTO_ENABLE n here, y there").
 */
int ucx_address_compare(const struct ucx_address *here, const struct ucx_address *there,
	char *error, size_t error_bytes);

#endif

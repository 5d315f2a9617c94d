/* facts.h: facts about a node that it reports to others, and the addresses of its interfaces. */
#ifndef GPT2D_DAEMON_NODES_FACTS_H
#define GPT2D_DAEMON_NODES_FACTS_H

#include <jansson.h>
#include <stddef.h>
#include <sys/socket.h>

/*
 * The first address of the interface (NULL: -EINVAL), port 0. 0, or a negative errno with error:
 * the interface does not exist, is down, or has no address.
 */
int facts_interface_address(
	const char *interface, struct sockaddr_storage *out, char *error, size_t error_bytes);

/* {host, boot_id, pid, version, build, ucx: {NAME: value}, gpus: [UUID]}, for node.hello. */
json_t *facts_json(void);

#endif

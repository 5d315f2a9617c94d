/*
 * interface.h: checks whether a network interface can carry the traffic between nodes, so that a
 * wrong name is reported before a library waits for it.
 */
#ifndef GPT2D_ENGINE_COMM_INTERFACE_H
#define GPT2D_ENGINE_COMM_INTERFACE_H

#include <stddef.h>

enum { INTERFACE_ADDRESS_BYTES = 64 };

/*
 * The interface exists, is up and has an address: 0, and the address as text, IPv4 before IPv6,
 * with the name ("10.0.0.1%eth0"). Or -ENODEV, -ENETDOWN, -EADDRNOTAVAIL, and why (NUL terminated)
 * lists the usable interfaces.
 */
int interface_check(
	const char *name, char address[INTERFACE_ADDRESS_BYTES], char *why, size_t why_bytes);

/*
 * A value of NCCL_SOCKET_IFNAME, by NCCL's rules: prefixes with commas between them; "=" in front:
 * whole names; "^": all except these. 0 if an interface that is up and has an address matches, else
 * -ENODEV and why.
 */
int interface_check_nccl(const char *value, char *why, size_t why_bytes);

#endif

#include "engine/comm/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool has_address(const struct ifaddrs *at)
{
	return at->ifa_addr != NULL &&
		(at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
}

static bool usable(const struct ifaddrs *at)
{
	return has_address(at) && (at->ifa_flags & IFF_UP) != 0 &&
		(at->ifa_flags & IFF_RUNNING) != 0;
}

/* Appends the names of the usable interfaces, each once: "; usable here: lo, eth0". */
static void list_usable(const struct ifaddrs *all, char *why, size_t why_bytes)
{
	size_t used = strlen(why);
	bool any = false;

	for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
		const struct ifaddrs *before = all;

		while (before != at &&
			!(usable(before) && strcmp(before->ifa_name, at->ifa_name) == 0))
			before = before->ifa_next;
		if (!usable(at) || before != at || used >= why_bytes)
			continue;
		used += (size_t)snprintf(why + used, why_bytes - used, "%s%s",
			any ? ", " : "; usable here: ", at->ifa_name);
		any = true;
	}
}

static void format_address(const struct ifaddrs *at, char out[INTERFACE_ADDRESS_BYTES])
{
	char text[INET6_ADDRSTRLEN] = "?";

	if (at->ifa_addr->sa_family == AF_INET)
		inet_ntop(AF_INET,
			&((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, text,
			sizeof(text));
	else
		inet_ntop(AF_INET6,
			&((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr, text,
			sizeof(text));
	snprintf(out, INTERFACE_ADDRESS_BYTES, "%s%%%.15s", text, at->ifa_name);
}

int interface_check(
	const char *name, char address[INTERFACE_ADDRESS_BYTES], char *why, size_t why_bytes)
{
	const struct ifaddrs *found = NULL;
	struct ifaddrs *all = NULL;
	bool exists = false, up = false;
	int rc = 0;

	if (getifaddrs(&all) < 0) {
		rc = -errno;
		snprintf(why, why_bytes, "interface %.32s: %s", name, strerror(errno));
		return rc;
	}
	for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
		if (strcmp(at->ifa_name, name) != 0)
			continue;
		exists = true;
		up = up || ((at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0);
		if (usable(at) &&
			(found == NULL ||
				(found->ifa_addr->sa_family == AF_INET6 &&
					at->ifa_addr->sa_family == AF_INET)))
			found = at;
	}
	if (found != NULL) {
		format_address(found, address);
	} else {
		rc = !exists ? -ENODEV : !up ? -ENETDOWN : -EADDRNOTAVAIL;
		snprintf(why, why_bytes, "interface %.32s: %s", name,
			!exists       ? "no such interface on this node"
				: !up ? "the link is down"
				      : "it has no IP address");
		list_usable(all, why, why_bytes);
	}
	freeifaddrs(all);
	return rc;
}

static bool names(const char *list, bool whole, const char *name)
{
	for (const char *at = list; *at != '\0';) {
		size_t n = strcspn(at, ",");

		if (n > 0 && strncmp(at, name, n) == 0 && (!whole || name[n] == '\0'))
			return true;
		at += n + (at[n] == ',');
	}
	return false;
}

int interface_check_nccl(const char *value, char *why, size_t why_bytes)
{
	const char *list = value;
	bool except = *list == '^', whole, found = false;
	struct ifaddrs *all = NULL;
	int rc = 0;

	list += except;
	whole = *list == '=';
	list += whole;
	if (getifaddrs(&all) < 0) {
		rc = -errno;
		snprintf(why, why_bytes, "NCCL_SOCKET_IFNAME: %s", strerror(errno));
		return rc;
	}
	for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next)
		found = usable(at) && names(list, whole, at->ifa_name) != except;
	if (!found) {
		rc = -ENODEV;
		snprintf(why, why_bytes,
			"NCCL_SOCKET_IFNAME=%.64s: no interface of this node that is up and has an "
			"address matches",
			value);
		list_usable(all, why, why_bytes);
	}
	freeifaddrs(all);
	return rc;
}

#include "daemon/nodes/facts.h"

#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/version.h"

extern char **environ;

static int unusable(const struct ifaddrs *all, const char *interface, char *error, size_t bytes)
{
	char names[256] = "";
	size_t n = 0;

	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
			(i->ifa_flags & IFF_UP) != 0 && n < sizeof(names))
			n += (size_t)snprintf(names + n, sizeof(names) - n, " %s", i->ifa_name);
	snprintf(error, bytes,
		"interface %s: not found, down or without an address (this node has:%s)", interface,
		names);
	return -EADDRNOTAVAIL;
}

int facts_interface_address(
	const char *interface, struct sockaddr_storage *out, char *error, size_t error_bytes)
{
	struct ifaddrs *all = NULL, *i;
	int rc = 0;

	if (interface == NULL) {
		snprintf(error, error_bytes, "no interface is named");
		return -EINVAL;
	}
	if (getifaddrs(&all) < 0) {
		rc = -errno;
		snprintf(error, error_bytes, "interfaces: %s", strerror(-rc));
		return rc;
	}
	for (i = all; i != NULL; i = i->ifa_next)
		if (strcmp(i->ifa_name, interface) == 0 && (i->ifa_flags & IFF_UP) != 0 &&
			i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET)
			break;
	for (struct ifaddrs *k = all; i == NULL && k != NULL; k = k->ifa_next) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(void *)k->ifa_addr;

		if (strcmp(k->ifa_name, interface) == 0 && (k->ifa_flags & IFF_UP) != 0 &&
			v6 != NULL && v6->sin6_family == AF_INET6 &&
			!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
			i = k;
	}
	memset(out, 0, sizeof(*out));
	if (i == NULL)
		rc = unusable(all, interface, error, error_bytes);
	else
		memcpy(out, i->ifa_addr,
			i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
							  : sizeof(struct sockaddr_in6));
	freeifaddrs(all);
	return rc;
}

/* Identifies a boot of the kernel; "" if not known. */
static void read_boot_id(char out[64])
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f == NULL || fgets(out, 64, f) == NULL)
		out[0] = '\0';
	if (f != NULL)
		fclose(f);
	out[strcspn(out, "\n")] = '\0';
}

/* UCX's variables in the environment: they must be the same on all nodes. */
static json_t *ucx_json(void)
{
	json_t *ucx = json_object();

	for (char **v = environ; *v != NULL; v++) {
		const char *equals = strchr(*v, '=');
		char name[64];

		if (strncmp(*v, "UCX_", 4) != 0 || equals == NULL)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(equals - *v), *v);
		json_object_set_new(ucx, name, json_string(equals + 1));
	}
	return ucx;
}

/* The UUID in a line of the driver's such as "GPU UUID: 	 GPU-5ce6...". */
static void add_uuid(json_t *uuids, const char *file)
{
	char line[256], uuid[64];
	FILE *f = fopen(file, "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "GPU UUID: %63s", uuid) == 1)
			json_array_append_new(uuids, json_string(uuid));
	if (f != NULL)
		fclose(f);
}

/* Of all GPUs of the host, also of those that its ranks do not use. */
static json_t *gpus_json(void)
{
	json_t *uuids = json_array();
	glob_t found = {0};

	if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			add_uuid(uuids, found.gl_pathv[i]);
	globfree(&found);
	return uuids;
}

json_t *facts_json(void)
{
	char host[256] = "", boot[64] = "";

	gethostname(host, sizeof(host) - 1);
	read_boot_id(boot);
	return json_pack("{ss ss sI ss ss so so}", "host", host, "boot_id", boot, "pid",
		(json_int_t)getpid(), "version", VERSION_RELEASE, "build", version_build, "ucx",
		ucx_json(), "gpus", gpus_json());
}

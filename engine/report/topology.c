#include "engine/report/topology.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/report/nvml.h"

enum { TEXT_BYTES = 512, GPUS_MAX = 32 };

/* ---- files ---- */

/* The first line of a file without its newline; "" if there is none. */
__attribute__((format(printf, 2, 3))) static const char *read_line(
	char out[TEXT_BYTES], const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	FILE *file;

	out[0] = '\0';
	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	file = fopen(path, "re");
	if (file == NULL)
		return out;
	if (fgets(out, TEXT_BYTES, file) == NULL)
		out[0] = '\0';
	fclose(file);
	out[strcspn(out, "\n")] = '\0';
	return out;
}

static json_t *text_or_null(const char *text)
{
	json_t *string = text[0] != '\0' ? json_string(text) : NULL;

	return string != NULL ? string : json_null();
}

/* Null if it is not a number, and for -1, which means unknown in sysfs. */
static json_t *number_or_null(const char *text)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	return end == text || value < 0 ? json_null() : json_integer((json_int_t)value);
}

/* Names in a folder in order, without hidden ones; each(name) adds to a list. */
static json_t *list_folder(const char *root, const char *folder,
	json_t *(*each)(const char *root, const char *name), int (*choose)(const struct dirent *))
{
	struct dirent **entries = NULL;
	json_t *list = json_array();
	char path[PATH_MAX];
	int n;

	snprintf(path, sizeof(path), "%s%s", root, folder);
	n = scandir(path, &entries, choose, versionsort);
	for (int i = 0; i < n; i++) {
		json_array_append_new(list, each(root, entries[i]->d_name));
		free(entries[i]);
	}
	free(entries);
	return list;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* ---- processors ---- */

static int is_numa_node(const struct dirent *entry)
{
	return strncmp(entry->d_name, "node", 4) == 0 && isdigit((unsigned char)entry->d_name[4]);
}

static int is_cpu(const struct dirent *entry)
{
	return strncmp(entry->d_name, "cpu", 3) == 0 && isdigit((unsigned char)entry->d_name[3]);
}

static int64_t numa_memory_bytes(const char *root, const char *name)
{
	char path[PATH_MAX], line[TEXT_BYTES];
	int64_t kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/sys/devices/system/node/%s/meminfo", root, name);
	file = fopen(path, "re");
	while (file != NULL && kib < 0 && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "Node %*d MemTotal: %" SCNd64, &kib) != 1)
			kib = -1;
	if (file != NULL)
		fclose(file);
	return kib < 0 ? -1 : kib * 1024;
}

static json_t *pack_numa(const char *root, const char *name)
{
	const int64_t bytes = numa_memory_bytes(root, name);
	char cpus[TEXT_BYTES];

	read_line(cpus, "%s/sys/devices/system/node/%s/cpulist", root, name);
	return json_pack("{s:o, s:o, s:o}", "node", number_or_null(name + strlen("node")), "cpus",
		text_or_null(cpus), "memory_bytes",
		bytes < 0 ? json_null() : json_integer((json_int_t)bytes));
}

/* A processor's position: "socket.core" and "socket". */
static json_t *pack_place(const char *root, const char *name)
{
	char socket[TEXT_BYTES], core[TEXT_BYTES];

	read_line(socket, "%s/sys/devices/system/cpu/%s/topology/physical_package_id", root, name);
	read_line(core, "%s/sys/devices/system/cpu/%s/topology/core_id", root, name);
	return json_pack(
		"{s:s, s:o}", "socket", socket, "core", json_sprintf("%s.%s", socket, core));
}

static json_int_t count_different(const json_t *places, const char *key)
{
	json_t *seen = json_object(), *place;
	json_int_t n;
	size_t i;

	json_array_foreach(places, i, place)
		json_object_set_new(
			seen, json_string_value(json_object_get(place, key)), json_true());
	n = (json_int_t)json_object_size(seen);
	json_decref(seen);
	return n;
}

static void find_model(const char *root, char out[TEXT_BYTES])
{
	char path[PATH_MAX], line[TEXT_BYTES];
	FILE *file;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/proc/cpuinfo", root);
	file = fopen(path, "re");
	while (file != NULL && out[0] == '\0' && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL)
			snprintf(out, TEXT_BYTES, "%s", strchr(line, ':') + 2);
	if (file != NULL)
		fclose(file);
	out[strcspn(out, "\n")] = '\0';
}

static json_t *pack_cpu(const char *root)
{
	json_t *places = list_folder(root, "/sys/devices/system/cpu", pack_place, is_cpu), *cpu;
	char model[TEXT_BYTES];

	find_model(root, model);
	cpu = json_pack("{s:o, s:I, s:I, s:I, s:o}", "model", text_or_null(model), "sockets",
		count_different(places, "socket"), "cores", count_different(places, "core"),
		"threads", (json_int_t)json_array_size(places), "numa",
		list_folder(root, "/sys/devices/system/node", pack_numa, is_numa_node));
	json_decref(places);
	return cpu;
}

/* ---- GPUs ---- */

static json_t *pack_links(const struct nvml_gpus *gpus, int from)
{
	json_t *links = json_array();

	for (int to = 0; to < gpus->n; to++)
		json_array_append_new(links,
			to == from ? json_string("X")
				: gpus->nvlinks[from][to] > 0
				? json_sprintf("NV%d", gpus->nvlinks[from][to])
				: text_or_null(nvml_path_name(gpus->path[from][to])));
	return links;
}

static json_t *pack_gpus(const char *root, const char *library)
{
	struct nvml_gpus *gpus = nvml_list(library);
	json_t *list = json_array();

	for (int i = 0; gpus != NULL && i < gpus->n; i++) {
		const struct nvml_gpu *g = &gpus->gpu[i];
		char numa[TEXT_BYTES], cpus[TEXT_BYTES];

		read_line(numa, "%s/sys/bus/pci/devices/%s/numa_node", root, g->pci);
		read_line(cpus, "%s/sys/bus/pci/devices/%s/local_cpulist", root, g->pci);
		json_array_append_new(list,
			json_pack("{s:i, s:o, s:o, s:s, s:o, s:o, s:o}", "index", i, "name",
				text_or_null(g->name), "uuid", text_or_null(g->uuid), "pci", g->pci,
				"numa_node", number_or_null(numa), "cpus", text_or_null(cpus),
				"links", pack_links(gpus, i)));
	}
	free(gpus);
	return list;
}

/* ---- networks ---- */

/* The first address of an interface, IPv4 before IPv6; "" if it has none. */
static void find_address(const char *name, char out[INET6_ADDRSTRLEN])
{
	struct ifaddrs *all = NULL;

	out[0] = '\0';
	if (getifaddrs(&all) < 0)
		return;
	for (int family = AF_INET; family != 0; family = family == AF_INET ? AF_INET6 : 0)
		for (const struct ifaddrs *at = all; at != NULL && out[0] == '\0';
			at = at->ifa_next) {
			const void *address = at->ifa_addr;

			if (address == NULL || at->ifa_addr->sa_family != family ||
				strcmp(at->ifa_name, name) != 0)
				continue;
			inet_ntop(family,
				family == AF_INET
					? (const void *)&((const struct sockaddr_in *)address)
						  ->sin_addr
					: (const void *)&((const struct sockaddr_in6 *)address)
						  ->sin6_addr,
				out, INET6_ADDRSTRLEN);
		}
	freeifaddrs(all);
}

static json_t *pack_interface(const char *root, const char *name)
{
	char state[TEXT_BYTES], speed[TEXT_BYTES], mtu[TEXT_BYTES], numa[TEXT_BYTES];
	char address[INET6_ADDRSTRLEN];

	read_line(state, "%s/sys/class/net/%s/operstate", root, name);
	read_line(speed, "%s/sys/class/net/%s/speed", root, name);
	read_line(mtu, "%s/sys/class/net/%s/mtu", root, name);
	read_line(numa, "%s/sys/class/net/%s/device/numa_node", root, name);
	find_address(name, address);
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "name", name, "state",
		text_or_null(state), "mbit_s", number_or_null(speed), "mtu", number_or_null(mtu),
		"address", text_or_null(address), "numa_node", number_or_null(numa));
}

/* The first port of an adapter: adapters with several show as several devices. */
static json_t *pack_adapter(const char *root, const char *name)
{
	char state[TEXT_BYTES], rate[TEXT_BYTES], layer[TEXT_BYTES], guid[TEXT_BYTES];
	char numa[TEXT_BYTES];

	read_line(state, "%s/sys/class/infiniband/%s/ports/1/state", root, name);
	read_line(rate, "%s/sys/class/infiniband/%s/ports/1/rate", root, name);
	read_line(layer, "%s/sys/class/infiniband/%s/ports/1/link_layer", root, name);
	read_line(guid, "%s/sys/class/infiniband/%s/node_guid", root, name);
	read_line(numa, "%s/sys/class/infiniband/%s/device/numa_node", root, name);
	return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "name", name, "port", 1, "state",
		text_or_null(state), "rate", text_or_null(rate), "link_layer", text_or_null(layer),
		"guid", text_or_null(guid), "numa_node", number_or_null(numa));
}

json_t *topology_read(const char *root, const char *nvml)
{
	char hostname[65] = "", kernel[TEXT_BYTES] = "";
	struct utsname u;

	if (gethostname(hostname, sizeof(hostname) - 1) < 0)
		hostname[0] = '\0';
	if (uname(&u) == 0)
		snprintf(kernel, sizeof(kernel), "%s %s %s", u.sysname, u.release, u.machine);
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "hostname", text_or_null(hostname),
		"kernel", text_or_null(kernel), "cpu", pack_cpu(root), "gpus",
		pack_gpus(root, nvml), "interfaces",
		list_folder(root, "/sys/class/net", pack_interface, visible), "infiniband",
		list_folder(root, "/sys/class/infiniband", pack_adapter, visible));
}

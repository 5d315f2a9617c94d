/* gpt2ctl topo: how each node is built, for the folder in which results are kept. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/verbs/verb.h"
#include "proto/artifact.h"
#include "proto/size.h"

enum { TEXT_BYTES = 256, NAME_BYTES = 32 };

/* A text or a number of an object; "-" where it is null. */
static const char *field(const json_t *object, const char *key, char out[TEXT_BYTES])
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value)) {
		snprintf(out, TEXT_BYTES, "%" PRId64, (int64_t)json_integer_value(value));
		return out;
	}
	return format_string(object, key, "-", out, TEXT_BYTES);
}

static void print_cpu(FILE *to, const json_t *cpu)
{
	char model[TEXT_BYTES], sockets[TEXT_BYTES], cores[TEXT_BYTES], threads[TEXT_BYTES];
	char cpus[TEXT_BYTES], size[SIZE_BYTES];
	const json_t *node;
	size_t i;

	fprintf(to, "processors: %s, %s sockets, %s cores, %s threads\n",
		field(cpu, "model", model), field(cpu, "sockets", sockets),
		field(cpu, "cores", cores), field(cpu, "threads", threads));
	json_array_foreach(json_object_get(cpu, "numa"), i, node)
		fprintf(to, "  NUMA node %" PRId64 ": processors %s, %s\n",
			format_int(node, "node", 0), field(node, "cpus", cpus),
			size_text(format_int(node, "memory_bytes", 0), size));
}

/* As nvidia-smi topo -m shows it. */
static void print_gpus(FILE *to, const json_t *gpus)
{
	char name[TEXT_BYTES], uuid[TEXT_BYTES], pci[TEXT_BYTES], numa[TEXT_BYTES],
		cpus[TEXT_BYTES];
	const json_t *gpu, *link;
	size_t i, j;

	if (json_array_size(gpus) == 0)
		return;
	fprintf(to, "GPUs:\n        ");
	json_array_foreach(gpus, i, gpu)
		fprintf(to, "GPU%-3zu ", i);
	fprintf(to, "NUMA  processors\n");
	json_array_foreach(gpus, i, gpu) {
		fprintf(to, "  GPU%-2zu ", i);
		json_array_foreach(json_object_get(gpu, "links"), j, link)
			fprintf(to, "%-6s ", json_is_string(link) ? json_string_value(link) : "-");
		fprintf(to, "%-5s %s\n", field(gpu, "numa_node", numa), field(gpu, "cpus", cpus));
	}
	json_array_foreach(gpus, i, gpu)
		fprintf(to, "  GPU%-2zu %s, %s, %s\n", i, field(gpu, "name", name),
			field(gpu, "uuid", uuid), field(gpu, "pci", pci));
	fprintf(to,
		"  X itself; NV# so many NVLinks; PIX one PCIe switch; PXB several; PHB a host\n"
		"  bridge; NODE within a NUMA node; SYS between NUMA nodes\n");
}

static void print_networks(FILE *to, const json_t *topology)
{
	char name[TEXT_BYTES], state[TEXT_BYTES], speed[TEXT_BYTES], mtu[TEXT_BYTES];
	char address[TEXT_BYTES], numa[TEXT_BYTES], layer[TEXT_BYTES];
	const json_t *entry;
	size_t i;

	fprintf(to, "network interfaces:\n");
	json_array_foreach(json_object_get(topology, "interfaces"), i, entry)
		fprintf(to, "  %s: %s, %s, %s Mbit/s, MTU %s, NUMA node %s\n",
			field(entry, "name", name), field(entry, "state", state),
			field(entry, "address", address), field(entry, "mbit_s", speed),
			field(entry, "mtu", mtu), field(entry, "numa_node", numa));
	if (json_array_size(json_object_get(topology, "infiniband")) == 0)
		fprintf(to, "InfiniBand devices: none\n");
	else
		fprintf(to, "InfiniBand devices:\n");
	json_array_foreach(json_object_get(topology, "infiniband"), i, entry)
		fprintf(to, "  %s: %s, %s, %s, NUMA node %s\n", field(entry, "name", name),
			field(entry, "state", state), field(entry, "rate", speed),
			field(entry, "link_layer", layer), field(entry, "numa_node", numa));
}

static void print_node(FILE *to, const json_t *node)
{
	const json_t *topology = json_object_get(node, "topology");
	char host[TEXT_BYTES], kernel[TEXT_BYTES];

	fprintf(to, "node %" PRId64 ": ", format_int(node, "node", 0));
	if (!json_is_object(topology)) {
		fprintf(to, "its engines have not reported yet\n");
		return;
	}
	fprintf(to, "%s, %s\n", field(topology, "hostname", host),
		field(topology, "kernel", kernel));
	print_cpu(to, json_object_get(topology, "cpu"));
	print_gpus(to, json_object_get(topology, "gpus"));
	print_networks(to, topology);
}

static void print_nodes(struct output *o, const json_t *result)
{
	const json_t *node;
	size_t i;

	json_array_foreach(json_object_get(result, "nodes"), i, node) {
		if (i > 0)
			fputc('\n', o->out.file);
		print_node(o->out.file, node);
	}
}

/* topo-node0.txt and so on. 0, or the exit status with e. */
static int save(const char *folder, const json_t *result, struct ctl_error *e)
{
	const json_t *node;
	size_t i;

	json_array_foreach(json_object_get(result, "nodes"), i, node) {
		char name[NAME_BYTES], *text = NULL;
		size_t bytes = 0;
		FILE *to = open_memstream(&text, &bytes);
		int rc = -ENOMEM;

		snprintf(name, sizeof(name), "topo-node%d.txt", (int)format_int(node, "node", 0));
		if (to) {
			print_node(to, node);
			rc = fclose(to) == 0 ? artifact_write(folder, name, text, bytes) : -ENOMEM;
		}
		free(text);
		if (rc)
			return ctl_error_set(
				e, CTL_TRANSPORT, "%s/%s: %s", folder, name, strerror(-rc));
	}
	return 0;
}

static const struct option_row topo_options[] = {
	{"copy", 0, OPTION_STRING, "DIR", 0, 0,
		"also write topo-node0.txt and so on, a file for each node, to this folder"},
	{0},
};

static int run(struct ctl *ctl, const struct options *args)
{
	const char *folder = options_string(args, "copy", NULL);
	struct client *c = NULL;
	struct ctl_error e = {0};
	json_t *reply = NULL;
	int exit = client_open(&ctl->link, &c, &e);

	if (!exit)
		exit = client_request(c, METHOD_TOPO, json_object(), CLIENT_REPLY_S, &reply, &e);
	client_close(c);
	if (!exit && folder)
		exit = save(folder, reply, &e);
	if (!exit)
		output_print(&ctl->output, METHOD_TOPO, reply, print_nodes);
	json_decref(reply);
	return exit ? verb_fail(ctl, &e) : 0;
}

const struct verb verb_topo = {
	.name = "topo",
	.args = "",
	.summary = "how each node is built: processors, GPUs and their links, networks",
	.text = "The engines of each node report its topology when they start. A node whose "
		"engines never ran is listed without its topology. Links between GPUs have the "
		"same names as in nvidia-smi topo -m.",
	.options = topo_options,
	.run = run,
};

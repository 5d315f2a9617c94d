/* gpt2ctl topo: the hardware of each node, to be stored with results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "ctl/verbs/verb.h"
#include "proto/artifact.h"
#include "proto/host/memory.h"

enum { NAME_BYTES = 32 };

/* A line for each object. */
static void print_each(FILE *to, const json_t *objects, const char *format)
{
	const json_t *object;
	size_t i;

	json_array_foreach(objects, i, object)
		members_print(to, object, format);
}

/* As in nvidia-smi topo -m. */
static void print_gpus(FILE *to, const json_t *gpus)
{
	const json_t *gpu, *link, *numa;
	size_t i, j;

	if (json_array_size(gpus) == 0)
		return;
	fprintf(to, "GPUs:\n        ");
	json_array_foreach(gpus, i, gpu)
		fprintf(to, "GPU%-3zu ", i);
	fprintf(to, "NUMA  processors\n");
	json_array_foreach(gpus, i, gpu) {
		char node[16] = "-";

		fprintf(to, "  GPU%-2zu ", i);
		json_array_foreach(json_object_get(gpu, "links"), j, link)
			fprintf(to, "%-6s ", json_is_string(link) ? json_string_value(link) : "-");
		numa = json_object_get(gpu, "numa_node");
		if (json_is_integer(numa))
			snprintf(node, sizeof(node), "%d", (int)json_integer_value(numa));
		fprintf(to, "%-5s ", node);
		members_print(to, gpu, "{cpus|-}\n");
	}
	json_array_foreach(gpus, i, gpu) {
		fprintf(to, "  GPU%-2zu ", i);
		members_print(to, gpu, "{name|-}, {uuid|-}, {pci|-}\n");
	}
	fprintf(to,
		"  X itself; NV# so many NVLinks; PIX one PCIe switch; PXB several; PHB a host\n"
		"  bridge; NODE within a NUMA node; SYS between NUMA nodes\n");
}

static void print_node(FILE *to, const json_t *node)
{
	const json_t *topology = json_object_get(node, "topology");
	const json_t *infiniband = json_object_get(topology, "infiniband");

	members_print(to, node, "node {node|0}: ");
	if (!json_is_object(topology)) {
		fprintf(to, "its engines have not reported yet\n");
		return;
	}
	members_print(to, topology,
		"{hostname|-}, {kernel|-}\n"
		"processors: {cpu.model|-}, {cpu.sockets|-} sockets, {cpu.cores|-} cores, "
		"{cpu.threads|-} threads\n");
	print_each(to, json_object_get(json_object_get(topology, "cpu"), "numa"),
		"  NUMA node {node|0}: processors {cpus|-}, {memory_bytes:size}\n");
	print_gpus(to, json_object_get(topology, "gpus"));
	fprintf(to, "network interfaces:\n");
	print_each(to, json_object_get(topology, "interfaces"),
		"  {name|-}: {state|-}, {address|-}[, {mbit_s} Mbit/s], MTU {mtu|-}"
		"[, NUMA node {numa_node}]\n");
	fprintf(to, "InfiniBand devices:%s\n", json_array_size(infiniband) == 0 ? " none" : "");
	print_each(to, infiniband,
		"  {name|-}: {state|-}, {rate|-}, {link_layer|-}, NUMA node {numa_node|-}\n");
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
		char name[NAME_BYTES], *text;
		size_t bytes;
		FILE *to = memory_stream(&text, &bytes);
		int rc;

		snprintf(name, sizeof(name), "topo-node%d.txt", (int)format_int(node, "node", 0));
		print_node(to, node);
		memory_stream_end(to);
		rc = artifact_write(folder, name, text, bytes);
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

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const char *folder = options_string(args, "copy", NULL);
	json_t *reply = NULL;
	int exit = client_ask(&ctl->link, METHOD_TOPO, json_object(), &reply, e);

	if (!exit && folder)
		exit = save(folder, reply, e);
	if (!exit)
		output_print(&ctl->output, METHOD_TOPO, reply, print_nodes);
	json_decref(reply);
	return exit;
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

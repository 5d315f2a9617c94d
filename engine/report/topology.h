/*
 * topology.h: the hardware of a node, as evidence beside its figures: processors and memory by NUMA
 * node, GPUs and the links between them, network interfaces, InfiniBand devices. From sysfs, procfs
 * and NVML; missing hardware is an empty list, an unknown value is null.
 */
#ifndef GPT2D_ENGINE_REPORT_TOPOLOGY_H
#define GPT2D_ENGINE_REPORT_TOPOLOGY_H

#include <jansson.h>

/*
 * A new reference. root: "" except in tests: prefix of /sys and /proc. nvml: the library's file,
 * NULL for the driver's own.
 *
 * {hostname, kernel, cpu {model, sockets, cores, threads, numa [{node, cpus, memory_bytes}]},
 *  gpus [{index, name, uuid, pci, numa_node, cpus, links [text]}], interfaces [{name, state,
 *  mbit_s, mtu, address, numa_node}], infiniband [{name, port, state, rate, link_layer, guid,
 *  numa_node}]}
 *
 * links: to each GPU in the order of the list, in the words of nvidia-smi topo -m: X itself, NV#
 * number of NVLinks, PIX one PCIe switch, PXB several, PHB a host bridge, NODE within a NUMA node,
 * SYS between NUMA nodes.
 */
json_t *topology_read(const char *root, const char *nvml);

#endif

/*
 * memory_limit.h: the memory of a device as far as ranks can have it: where they share the
 * machine's (the CPU), what a control group limits it to (proto/host/cgroup.h).
 */
#ifndef GPT2D_ENGINE_CHECK_MEMORY_LIMIT_H
#define GPT2D_ENGINE_CHECK_MEMORY_LIMIT_H

#include "kernels/kernels.h"
#include "proto/host/cgroup.h"

/* Lowers the two numbers in info. file: that says memory_total_bytes, "" when no group does. */
void memory_limit_apply(struct k_device_info *info, char file[CGROUP_FILE_BYTES]);

#endif

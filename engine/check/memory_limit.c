#include "engine/check/memory_limit.h"

#include <string.h>

void memory_limit_apply(struct k_device_info *info, char file[CGROUP_FILE_BYTES])
{
	struct cgroup_memory group;

	file[0] = '\0';
	if (info->pci != NULL || cgroup_memory_read("", &group) < 0)
		return;
	if (info->memory_free_bytes > group.free_bytes)
		/* 0 would say that it is not known */
		info->memory_free_bytes = group.free_bytes > 0 ? group.free_bytes : 1;
	if (info->memory_total_bytes > 0 && info->memory_total_bytes <= group.limit_bytes)
		return;
	info->memory_total_bytes = group.limit_bytes;
	strcpy(file, group.file);
}

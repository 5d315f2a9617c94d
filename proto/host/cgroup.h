/*
 * cgroup.h: the memory and the processors that the control group of this process may use, and
 * whether the kernel killed processes of the group for lack of memory. Version 2 of control groups,
 * mounted at /sys/fs/cgroup, or a controller of version 1 below it. Files: cgroups(7), the kernel's
 * admin-guide/cgroup-v2 and cgroup-v1.
 *
 * root is "", or the folder in which a test has its /proc and /sys.
 */
#ifndef GPT2D_PROTO_HOST_CGROUP_H
#define GPT2D_PROTO_HOST_CGROUP_H

#include <stdint.h>

enum { CGROUP_FILE_BYTES = 512 };

struct cgroup_memory {
	int64_t limit_bytes; /* the lowest limit of the group and its ancestors */
	/*
	 * until the first limit is reached; file pages, which the kernel can drop, do not count as
	 * used
	 */
	int64_t free_bytes;
	char file[CGROUP_FILE_BYTES]; /* has limit_bytes */
};

/* 0, or -ENOENT: no visible limit. */
int cgroup_memory_read(const char *root, struct cgroup_memory *out);

/* The whole processors that this process may use by its affinity and its quota, at least 1. */
int cgroup_processors(const char *root);

/*
 * The number of processes that the kernel has killed for lack of memory, in the group or its
 * nearest ancestor with a counter, and the counter's file; -ENOENT: none.
 */
int64_t cgroup_oom_kills(const char *root, char file[CGROUP_FILE_BYTES]);

#endif

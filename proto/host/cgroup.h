/*
 * cgroup.h: the memory that the control group of this process may take, and whether the kernel
 * ended processes of it for lack of memory. Version 2 of control groups, or the memory controller
 * of version 1 where that is in use; what is outside of a container's view of them is not seen.
 * Files: cgroups(7), and the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
 */
#ifndef GPT2D_PROTO_HOST_CGROUP_H
#define GPT2D_PROTO_HOST_CGROUP_H

#include <stdint.h>

enum { CGROUP_FILE_BYTES = 512 };

struct cgroup_memory {
	int64_t limit_bytes; /* the narrowest of the group's and those above it */
	/* until the first of the limits is reached, what can be dropped (files' pages) not counted
	 * as taken; 0 and above */
	int64_t free_bytes;
	char file[CGROUP_FILE_BYTES]; /* that says limit_bytes */
};

/*
 * root: "", or where a test has its own /proc/self and what is mounted. 0; -ENOENT: no limit is
 * set, or nothing tells of one.
 */
int cgroup_memory_read(const char *root, struct cgroup_memory *out);

/*
 * How many processes and threads the group may still have, until the first limit of it and of those
 * above is reached, 0 and above, and the file that says that limit; version 2 only. -ENOENT: no
 * limit is set, or nothing tells of one.
 */
int64_t cgroup_pids_left(const char *root, char file[CGROUP_FILE_BYTES]);

/*
 * How many processes of the group, or of the nearest above that tells, the kernel has ended for
 * lack of memory, and the file that says it; -ENOENT: nothing tells.
 */
int64_t cgroup_oom_kills(const char *root, char file[CGROUP_FILE_BYTES]);

#endif

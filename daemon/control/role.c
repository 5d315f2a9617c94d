#include "daemon/control/role.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "proto/host/memory.h"

enum {
	NOBODY = 65534, /* /proc/sys/kernel/overflowuid and overflowgid */
	GROUPS_FEW = 64,
	GROUPS_MAX = 65536, /* Linux allows no more for a process */
};

/* The peer's further groups: how many, or a negative errno. */
static int peer_groups(int fd, gid_t **out)
{
	socklen_t bytes = GROUPS_FEW * sizeof(gid_t);
	gid_t *groups = NULL;
	int rc = -ERANGE;

	while (rc == -ERANGE && bytes <= GROUPS_MAX * sizeof(gid_t)) {
		groups = memory_resized(groups, bytes);
		/* too small: the kernel sets bytes to the required size */
		rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0 ? -errno : 0;
	}
	if (rc < 0) {
		free(groups);
		return rc;
	}
	*out = groups;
	return (int)(bytes / sizeof(gid_t));
}

bool role_is_member(int fd, uid_t uid, gid_t gid, const struct settings_group *group)
{
	gid_t *groups = NULL;
	bool found = false;
	int n;

	if (group->name == NULL || group->gid == NOBODY)
		return false;
	if (gid == group->gid)
		return true;
	n = peer_groups(fd, &groups);
	if (n < 0)
		log_write(LOG_WARNING, "client: cannot look up the groups of uid %u: error %d",
			(unsigned)uid, -n);
	for (int i = 0; i < n && !found; i++)
		found = groups[i] == group->gid;
	free(groups);
	return found;
}

bool role_is_admin(int fd, uid_t uid, gid_t gid, const struct settings_group *admins)
{
	return uid == 0 || uid == geteuid() || role_is_member(fd, uid, gid, admins);
}

bool role_may_read(const struct settings *s, uid_t uid)
{
	return s->data_roots.n > 0 || uid == 0 || uid == geteuid();
}

void role_say_unreadable(uid_t uid, char *out, size_t out_bytes)
{
	snprintf(out, out_bytes,
		"gpt2d runs as uid %u and reads files for others, as uid %u, below its data_roots "
		"only: none is set in gpt2d.conf (data_roots = / allows every file that gpt2d may "
		"read)",
		(unsigned)geteuid(), (unsigned)uid);
}

/* Whether this user namespace maps every user, as that of a machine does in one row. */
static bool maps_all_users(void)
{
	unsigned long here, outside, n = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	bool all = f == NULL ||
		(fscanf(f, "%lu %lu %lu", &here, &outside, &n) == 3 && n == UINT32_MAX);

	if (f != NULL)
		fclose(f);
	return all;
}

bool role_is_nobody(const struct client_peer *who)
{
	return who->uid == NOBODY && !who->admin && !maps_all_users();
}

bool role_may_change(const struct client_peer *who, uid_t owner)
{
	return who->admin || (who->uid == owner && !role_is_nobody(who));
}

bool role_may_ask(const struct client_peer *who, enum role needed)
{
	return who->admin || needed == ROLE_ANYBODY || needed == ROLE_OWNER ||
		(needed == ROLE_MEMBER && who->member);
}

void role_say_refused(const char *request, enum role needed, char *out, size_t out_bytes)
{
	snprintf(out, out_bytes,
		"%s: only root, the user of gpt2d (uid %u) and members of %sadmin_group may",
		request, (unsigned)geteuid(), needed == ROLE_MEMBER ? "socket_group or " : "");
}

bool role_may_rank(const struct client_peer *who, int64_t priority, int64_t before)
{
	return who->admin || priority <= 0 || priority <= before;
}

void role_say_unranked(int64_t priority, char *out, size_t out_bytes)
{
	snprintf(out, out_bytes,
		"priority: %lld: only root, gpt2d's own user (uid %u) and members of admin_group "
		"may set a value above 0, because such a run starts before those of others",
		(long long)priority, (unsigned)geteuid());
}

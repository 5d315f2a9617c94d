/*
 * role.h: what a client may do. Everybody who may connect may submit runs and see all runs. A run
 * belongs to the user who submitted it. Admins are root, the user that gpt2d runs as, and the
 * members of admin_group. Members of socket_group may release the GPUs that they share.
 */
#ifndef GPT2D_DAEMON_CONTROL_ROLE_H
#define GPT2D_DAEMON_CONTROL_ROLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct settings;
struct settings_group;

/* A client, as the kernel identifies it when it connects (SO_PEERCRED). */
struct client_peer {
	uint64_t number; /* never used twice */
	uid_t uid;
	pid_t pid;
	bool admin;
	bool member; /* of socket_group */
};

/* What a request requires. */
enum role {
	ROLE_ANYBODY = 1,
	/* owner of the run, or an admin; the request checks this once the run is known */
	ROLE_OWNER,
	ROLE_MEMBER, /* member of socket_group, or an admin: the users who share the GPUs */
	ROLE_ADMIN,
};

/* Reads the credentials of a connected socket, with the groups of the peer at that time. */
bool role_is_admin(int fd, uid_t uid, gid_t gid, const struct settings_group *admins);
/* Whether the peer is in the group; false without a group. */
bool role_is_member(int fd, uid_t uid, gid_t gid, const struct settings_group *group);

/* Whether the client may make such a request. */
bool role_may_ask(const struct client_peer *who, enum role needed);
/* Why not: what the request requires. */
void role_say_refused(const char *request, enum role needed, char *out, size_t out_bytes);

/*
 * Whether the client may be any user that this user namespace does not map, as in a rootless
 * container: all of them have the uid of nobody. Such a client owns no runs.
 */
bool role_is_nobody(const struct client_peer *who);

/* Whether the client may change what owner owns. gpt2d itself belongs to its user. */
bool role_may_change(const struct client_peer *who, uid_t owner);

/*
 * Whether runs of uid may read files. With data_roots the runs of all users may read below them.
 * Without, only runs of root and of gpt2d's user may read, with gpt2d's permissions.
 */
bool role_may_read(const struct settings *s, uid_t uid);
/* Why they may not, and what the owner of gpt2d can do. */
void role_say_unreadable(uid_t uid, char *out, size_t out_bytes);

/*
 * Whether the client may give a run this priority; before: its present priority, 0 at submission.
 * Only admins may set a priority above 0, because such a run starts before those of others.
 */
bool role_may_rank(const struct client_peer *who, int64_t priority, int64_t before);
/* Why not. */
void role_say_unranked(int64_t priority, char *out, size_t out_bytes);

#endif

/*
 * role.h: who a client is to gpt2d, and what that allows. Everybody who may connect submits runs
 * and sees all there are. A run belongs to whom it was submitted by. Admins are root, the user that
 * gpt2d runs as, and who is in admin_group.
 */
#ifndef GPT2D_DAEMON_CONTROL_ROLE_H
#define GPT2D_DAEMON_CONTROL_ROLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct settings;
struct settings_group;

/* A client, as the kernel identifies it when it connects. */
struct client_peer {
	uint64_t number; /* never used twice */
	uid_t uid;
	pid_t pid;
	bool admin;  /* root, the daemon's user, or a member of admin_group */
	bool anyone; /* userns.h: this uid is not of one user alone */
};

/* What a request needs. */
enum role {
	ROLE_ANYBODY = 1, /* who may connect */
	ROLE_OWNER,       /* of the run, or an admin: asked again once the run is known */
	ROLE_ADMIN,
};

/* Whether who may ask for it at all. */
bool role_may_ask(const struct client_peer *who, enum role needed);

/* Of a connected socket and its credentials; the groups are those the peer had when it connected.
 */
bool role_is_admin(int fd, uid_t uid, gid_t gid, const struct settings_group *admins);

/*
 * Whether runs of uid may read files at all: with data_roots everybody's may, below those. Without,
 * what gpt2d may read is for root and for the user that it runs as: not for all who may connect.
 */
bool role_may_read(const struct settings *s, uid_t uid);
/* Why they may not, and what the owner of gpt2d can do about it. */
void role_say_unreadable(uid_t uid, char *out, size_t out_bytes);

/*
 * Whether who may change what belongs to owner; the daemon itself belongs to its own user. Nothing
 * belongs to whose uid is that of many.
 */
bool role_may_change(const struct client_peer *who, uid_t owner);

/*
 * Whether who may give a run this priority; before is the one that it has, 0 when it is submitted.
 * Above 0 a run comes before those of everybody else: that is for admins. To lower, or to order
 * one's own below 0, is everybody's.
 */
bool role_may_rank(const struct client_peer *who, int64_t priority, int64_t before);
/* Why not. */
void role_say_unranked(int64_t priority, char *out, size_t out_bytes);

#endif

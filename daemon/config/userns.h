/*
 * userns.h: the user namespace that gpt2d runs in, as in a rootless container. Users that it does
 * not map have one id there, that of nobody in particular.
 */
#ifndef GPT2D_DAEMON_CONFIG_USERNS_H
#define GPT2D_DAEMON_CONFIG_USERNS_H

#include <stdbool.h>
#include <sys/types.h>

bool userns_maps_all(void);
/* Whether a peer of this uid, or gid, may be any of those that are not mapped. */
bool userns_is_anybody(uid_t uid);
bool userns_is_any_group(gid_t gid);

#endif

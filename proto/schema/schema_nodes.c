/* Several nodes: what status says of them, and what the leader and its members send each other. */
#include <stddef.h>

#include "proto/schema/schema.h"

const struct schema_row schema_nodes[] = {
	{"world", SCHEMA_OBJECT, "The nodes, as this one sees them."},
	{"node", "count", "the ID of this node; 0: the leader"},
	{"part", "=leader,member", ""},
	{"nodes", "count|null", "of the world; null on a member"},
	{"cluster", "text", ""},
	{"interface", "text|null", "of UCX and NCCL between nodes"},
	{"listen", "text|null", "address of the leader's socket, with the port that it got"},
	{"leader", "leader|null", "null on the leader"},
	{"members", "[member]", "on the leader: all nodes but its own"},

	{"leader", SCHEMA_OBJECT, "A member's link to its leader."},
	{"state", "=waiting,connecting,joined,fencing,stopping,stopped",
		"fencing: the leader is lost and the engines end"},
	{"host", "text|null", "as the leader says; null: it was never there"},
	{"address", "text", "the setting join"},
	{"since", "time|null", "the member joined, or lost the leader"},
	{"reason", "text|null", "why the member is not joined"},
	{"silent_s", "real|null", "since the last message"},

	{"member", SCHEMA_OBJECT, "A member, as the leader sees it."},
	{"node", "count", ""},
	{"state", "=missing,joined,lost", ""},
	{"since", "time|null", "it joined or was lost"},
	{"address", "text|null", ""},
	{"reason", "text|null", "why it was lost"},
	{"silent_s", "real|null", "since the last message"},
	{"rtt_s", "real|null", "of the last heartbeat"},
	{"clock_offset_s", "real|null", "its clock minus the leader's, half of rtt_s exact"},
	{"host", "text|null", ""},
	{"boot_id", "text|null", "of its kernel"},
	{"pid", "count|null", "of its gpt2d"},
	{"version", "text|null", ""},
	{"build", "text|null", ""},
	{"ucx", "{text}|null", "its variables UCX_*"},
	{"gpus", "[text]|null", "UUIDs of its host's GPUs"},

	{"node.hello", SCHEMA_REPORT, "A member: the first message of a connection."},
	{"protocol", "count", ""},
	{"version", "text", ""},
	{"build", "text", ""},
	{"node", "count", "as in the identity of the TLS key"},
	{"ranks", "count", "of this node"},
	{"host", "text", ""},
	{"boot_id", "text", ""},
	{"pid", "count", ""},
	{"ucx", "{text}", "variables UCX_*"},
	{"gpus", "[text]", "UUIDs of the host's GPUs"},

	{"node.welcome", SCHEMA_ORDER, "The leader: the member belongs to the world."},
	{"nodes", "count", ""},
	{"world", "count", "ranks of all nodes"},
	{"host", "text", "of the leader"},

	{"node.refused", SCHEMA_ORDER, "The leader: why it does not; the leader then closes."},
	{"reason", "text", ""},

	{"node.alive", SCHEMA_ORDER, "The leader, each second; the member sends it back."},
	{"leader_ns", "count", "a monotonic time"},
	{"leader_utc_ns", "count", ""},
	{"utc_ns", "?count", "on the way back: the member's time"},

	{"node.start", SCHEMA_ORDER, "The leader: start the engines of this node."},
	{"epoch", "count", "grows from one start of all engines to the next"},
	{"world", "count", "ranks of all nodes"},

	{"node.send", SCHEMA_ORDER, "The leader: pass a message on to engines of this node."},
	{"epoch", "count", ""},
	{"ranks", "count", "to the first of them"},
	{"method", "text", ""},
	{"params", "object", "of that message"},

	{"node.kill", SCHEMA_ORDER, "The leader: kill the engines of this node."},
	{"epoch", "count", ""},

	{"node.started", SCHEMA_REPORT, "A member: the process of a rank runs."},
	{"epoch", "count", ""},
	{"rank", "count", "of the world"},
	{"pid", "count", ""},

	{"node.said", SCHEMA_REPORT, "A member: a message of a rank."},
	{"epoch", "count", ""},
	{"rank", "count", ""},
	{"method", "text", ""},
	{"params", "object", "of that message"},

	{"node.broken", SCHEMA_REPORT, "A member: nothing more will come from a rank."},
	{"epoch", "count", ""},
	{"rank", "count", ""},
	{"reason", "?text", "it sent an invalid message; absent: it closed its link"},

	{"node.ended", SCHEMA_REPORT, "A member: the process of a rank has ended."},
	{"epoch", "count", ""},
	{"rank", "count", ""},
	{"end", "text", "how"},
	{"blames_peer", "bool", "it lost another rank: the cause is elsewhere"},

	{"node.check", SCHEMA_ORDER, "The leader: check a spec with the files of this node."},
	{"id", "count", "comes back in node.checked"},
	{"world", "count", ""},
	{"spec", "text", ""},
	{"arm", "text", ""},
	{"file", "text", "a token file of the arm, for a message"},
	{"runs", "?text|null", "the leader's folder of the runs' directories"},
	{"resume", "?[text]", "folders of checkpoints for resume_from"},

	{"node.checked", SCHEMA_REPORT, "A member: what is wrong with the spec on its node."},
	{"id", "count", ""},
	{"errors", "[check_error]", ""},

	{"node.leave", SCHEMA_REPORT, "A member: its gpt2d is stopped."},
	{"reason", "text", ""},
	{NULL, NULL, NULL},
};

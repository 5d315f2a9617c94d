/*
 * engine_link.h: one engine process: started by exec, with a socketpair as its fd 3 for lines both
 * ways, its printed output (engine_output.h), its end. It dies with gpt2d (parent-death signal).
 * The owner decides what to send and when the process is late (engine_pool.c, checker.c).
 */
#ifndef GPT2D_DAEMON_ENGINES_ENGINE_LINK_H
#define GPT2D_DAEMON_ENGINES_ENGINE_LINK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct engine_link;

struct engine_link_options {
	struct event_base *base;
	const char *program;
	const char *const *argv; /* argv[0] included; used during create only */
	const char *what;        /* "rank 0", "checker": for messages; copied */
	/* A notification of the engine; params is borrowed. */
	void (*message)(struct engine_link *link, const char *method, json_t *params, void *arg);
	/*
	 * No more messages will come. why: it sent an invalid message; NULL: it closed the link,
	 * and its exit status, which follows soon, says more.
	 */
	void (*broken)(struct engine_link *link, const char *why, void *arg);
	void *arg;
};

/* How long to wait then for the end of the process: it may have much memory to free. */
enum { ENGINE_LINK_END_S = 5 };

/*
 * 0, or a negative errno if no process could be created. If the program cannot be started, the end
 * of the process reports it later.
 */
int engine_link_create(const struct engine_link_options *options, struct engine_link **out);
/* Kills the process and its children, and waits for its end. Takes NULL. */
void engine_link_destroy(struct engine_link *link);

/* The command line of a rank. */
struct engine_link_rank {
	int rank, local_rank, ranks; /* of the world; on this node, from 0; the world */
	int threads, peak_tflops;
	const char *tuning_dir;
	const char *interface; /* between nodes; NULL: there is one node */
};
/* As engine_link_create, with the arguments of a rank. */
int engine_link_create_rank(const struct engine_link_options *options,
	const struct engine_link_rank *rank, struct engine_link **out);

/*
 * An engine on another node: that node's gpt2d forwards its messages and reports its end. The
 * caller sends to it and kills it through that gpt2d; all other functions work as for a local one.
 */
struct engine_link *engine_link_create_remote(const struct engine_link_options *options);
void engine_link_remote_started(struct engine_link *link, pid_t pid);
void engine_link_remote_message(struct engine_link *link, const char *method, json_t *params);
void engine_link_remote_broken(struct engine_link *link, const char *why);
void engine_link_remote_ended(struct engine_link *link, const char *end, bool blames_peer);

/* Takes params. If the message cannot be sent, broken() is called later. */
void engine_link_send(struct engine_link *link, const char *method, json_t *params);
void engine_link_kill(struct engine_link *link);
pid_t engine_link_pid(const struct engine_link *link);        /* 0 once its end was collected */
int64_t engine_link_heard_ns(const struct engine_link *link); /* monotonic, of the last message */

/* Whether the process has ended, collected or not. */
bool engine_link_ended(const struct engine_link *link);
/*
 * Reads what it has written, before the caller judges its silence or its end: gpt2d itself may have
 * been suspended, and the last messages may explain the end better. Reads at most 1 MiB, because a
 * child that holds the link open may keep writing.
 */
void engine_link_drain(struct engine_link *link);
/* On SIGCHLD: whether the process has ended; then engine_link_end says how. */
bool engine_link_reap(struct engine_link *link);
/*
 * "killed by signal 9", with the count of oom_kill if it grew, "exited with status 70 (a peer went
 * away)", with its last error, "could not be started: PATH: No such file or directory"; "runs" if
 * it has not ended.
 */
const char *engine_link_end(const struct engine_link *link);
/* Advice for an engine of another build or protocol. */
#define ENGINE_LINK_CURE "install gpt2d and its engine from the same build"
/* Checks the parameters of engine.hello: why is empty, or says that protocol or build differ. */
void engine_link_check_build(
	const struct engine_link *link, json_t *params, char *why, size_t why_bytes);

/* It ended because of another engine (ENGINE_EXIT_PEER_LOST): the cause is there. */
bool engine_link_blames_peer(const struct engine_link *link);

#endif

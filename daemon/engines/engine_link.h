/*
 * engine_link.h: one engine process: started by exec, a socketpair to it (its fd 3), lines both
 * ways, what it prints (engine_output.h), its end. It dies with gpt2d (parent-death signal). What
 * to say to it and when it is late is the caller's affair (engine_pool.c, checker.c).
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
	char *const *argv; /* argv[0] included; used during create only */
	const char *what;  /* "rank 0", "checker": for messages; copied */
	/* A notification of the engine; params is borrowed. */
	void (*message)(struct engine_link *link, const char *method, json_t *params, void *arg);
	/*
	 * Nothing more will come. why: it sent what is no message; NULL: it closed the link, and
	 * how its process ends, which is known soon, says more.
	 */
	void (*broken)(struct engine_link *link, const char *why, void *arg);
	void *arg;
};

/* How long the end of the process is waited for then: it may have much memory to give back. */
enum { ENGINE_LINK_END_S = 5 };

/*
 * 0, or a negative errno where no process could be made. That program could not be started in it is
 * known later, as its end.
 */
int engine_link_create(const struct engine_link_options *options, struct engine_link **out);
/* Kills the process and what it has started, if it still is one, and waits for its end (it has been
 * sent SIGKILL). Takes NULL. */
void engine_link_destroy(struct engine_link *link);

/* The command line of a rank. */
struct engine_link_rank {
	int rank, local_rank, ranks; /* of the world; on this node, from 0; the world */
	int threads, peak_tflops;
	const char *tuning_dir;
	const char *interface; /* between nodes; NULL: the world is on one node */
};
/* As engine_link_create, with the arguments of a rank. */
int engine_link_create_rank(const struct engine_link_options *options,
	const struct engine_link_rank *rank, struct engine_link **out);

/*
 * An engine on another node: its gpt2d passes on what the process says and how it ends. The caller
 * sends to it and kills it through that gpt2d; all other functions work as for a local one.
 */
struct engine_link *engine_link_create_remote(const struct engine_link_options *options);
void engine_link_remote_started(struct engine_link *link, pid_t pid);
void engine_link_remote_message(struct engine_link *link, const char *method, json_t *params);
void engine_link_remote_broken(struct engine_link *link, const char *why);
void engine_link_remote_ended(struct engine_link *link, const char *end, bool blames_peer);

/* Takes params. If the message cannot be sent, broken() is called later. */
void engine_link_send(struct engine_link *link, const char *method, json_t *params);
void engine_link_kill(struct engine_link *link);
pid_t engine_link_pid(const struct engine_link *link);        /* 0 once it has been waited for */
int64_t engine_link_heard_ns(const struct engine_link *link); /* monotonic, of the last message */

/* Whether the process has ended, be it waited for or not. */
bool engine_link_ended(const struct engine_link *link);
/*
 * Handle now what it has written, before its silence or its end is judged: gpt2d itself may have
 * stood still, and its last words may say better than its end why it ended. At most 1 MiB is read:
 * it, or a child that holds the link open, may write on.
 */
void engine_link_drain(struct engine_link *link);
/* On SIGCHLD: whether the process has ended, now or before; then engine_link_end says how. */
bool engine_link_reap(struct engine_link *link);
/*
 * "killed by signal 9", with the count of oom_kill where it grew, "exited with status 70 (a peer
 * went away)", with its last error, "could not be started: PATH: No such file or
 * directory"; "runs" while it does.
 */
const char *engine_link_end(const struct engine_link *link);
/* What to do about an engine of another build or protocol. */
#define ENGINE_LINK_CURE "install gpt2d and its engine from the same build"
/* Of the parameters of engine.hello: why is empty, or says that protocol or build differ. */
void engine_link_check_build(
	const struct engine_link *link, json_t *params, char *why, size_t why_bytes);

/* It ended because of another one (ENGINE_EXIT_PEER_LOST): the cause is elsewhere. */
bool engine_link_blames_peer(const struct engine_link *link);

#endif

#include "daemon/engines/engine_link.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "daemon/engines/engine_output.h"
#include "daemon/store/store_sql.h"
#include "daemon/config/log.h"
#include "proto/host/procfs.h"
#include "proto/host/cgroup.h"
#include "proto/frame.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "proto/host/memory.h"
#include "proto/host/starved.h"
#include "proto/version.h"

enum {
	LINK_FD = 3,
	LINES_PER_TURN = 256,
	DRAIN_MAX = 1 << 20, /* bytes: more than a socket holds */
	EXEC_FAILED = 127,
	OUTPUT_MAX = 4 * PROTOCOL_LINE_MAX, /* limit of output for an engine that reads nothing */
};

extern char **environ;

struct engine_link {
	struct engine_link_options o;
	char what[32];
	char end[800];
	char words[512]; /* its last error; empty: none */
	int *exec_errno; /* shared with the child until it calls exec */
	pid_t pid;
	struct engine_output *output;
	struct bufferevent *io;
	struct event *again;
	struct frame *frame;
	int64_t heard_ns;
	int64_t oom_kills; /* of the control group at the start; negative: unknown */
	bool blames_peer;
	bool broken;
	bool unsent; /* a message to it was dropped: it is unusable */
	bool eof;    /* reported once all lines are handled */
	bool in_lines, dead;
	bool remote, remote_ended;
};

/* Between fork and exec: only async-signal-safe calls. */
static void become_engine(const struct engine_link *link, int link_fd, int out_fd, pid_t parent)
	__attribute__((noreturn));

static void become_engine(const struct engine_link *link, int link_fd, int out_fd, pid_t parent)
{
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t none;
	int null_fd;

	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		sigaction(s, &standard, NULL);
	/* a new process group, so that its children end with it; it may write to a terminal */
	setpgid(0, 0);
	signal(SIGTTOU, SIG_IGN);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(EXEC_FAILED);
	null_fd = open("/dev/null", O_RDONLY);
	link_fd = fcntl(link_fd, F_DUPFD, 10);
	out_fd = fcntl(out_fd, F_DUPFD, 10);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
		dup2(out_fd, STDERR_FILENO) < 0 || dup2(link_fd, LINK_FD) < 0)
		goto failed;
	close_range(LINK_FD + 1, ~0u, 0);
	/* execve could change the words, but does not */
	execve(link->o.program, (char *const *)(uintptr_t)link->o.argv, environ);
failed:
	*link->exec_errno = errno;
	_exit(EXEC_FAILED);
}

static void report_broken(struct engine_link *link, const char *why)
{
	if (link->broken)
		return;
	link->broken = true;
	if (!link->remote) {
		bufferevent_disable(link->io, EV_READ);
		/* the last error comes before its consequences */
		engine_output_drain(link->output);
	}
	link->o.broken(link, why, link->o.arg);
}

/* The last error of an engine usually explains its end. */
static void keep_words(struct engine_link *link, const char *method, const json_t *params)
{
	const char *level, *text;

	if (strcmp(method, ENGINE_LOG) != 0)
		return;
	level = json_string_value(json_object_get(params, "level"));
	text = json_string_value(json_object_get(params, "message"));
	if (level != NULL && text != NULL && strcmp(level, "error") == 0)
		snprintf(link->words, sizeof(link->words), "%s", text);
}

static void handle_line(struct engine_link *link, const char *line, size_t n)
{
	struct rpc_message m;
	char error[256], why[320];
	int code = rpc_parse(line, n, &m, NULL, error, sizeof(error));

	if (code != 0) {
		snprintf(why, sizeof(why), "sent an invalid message: %s", error);
		report_broken(link, why);
		return;
	}
	link->heard_ns = clock_mono_ns();
	if (m.kind == RPC_NOTIFICATION) {
		keep_words(link, m.method, m.params);
		link->o.message(link, m.method, m.params, link->o.arg);
	} else
		report_broken(link, "sent a request or a reply (expected a notification)");
	rpc_clear(&m);
}

static void feed(struct engine_link *link)
{
	struct evbuffer *in = bufferevent_get_input(link->io);
	struct evbuffer_iovec piece;

	while (evbuffer_peek(in, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
		frame_feed(link->frame, piece.iov_base, piece.iov_len);
		evbuffer_drain(in, piece.iov_len);
	}
}

/* Handles up to max lines; returns how many there were. */
static int take_lines(struct engine_link *link, int max)
{
	enum frame_status status = FRAME_LINE;
	int taken = 0;
	char *line;
	size_t n;

	link->in_lines = true; /* broken() may destroy the link */
	if (link->unsent)
		report_broken(link, "does not read what gpt2d sends");
	feed(link);
	while (!link->broken && !link->dead && taken < max) {
		status = frame_next(link->frame, &line, &n);
		if (status != FRAME_LINE)
			break;
		taken++;
		handle_line(link, line, n);
	}
	if (!link->dead && (status == FRAME_TOO_LONG || status == FRAME_BAD))
		report_broken(link,
			status == FRAME_BAD ? "sent a NUL byte" : "sent a line that is too long");
	link->in_lines = false;
	return taken;
}

static void handle_lines(struct engine_link *link)
{
	int taken = take_lines(link, LINES_PER_TURN);

	if (link->dead)
		engine_link_destroy(link);
	else if (taken == LINES_PER_TURN)
		event_active(link->again, 0, 0);
	else if (link->eof)
		report_broken(link, NULL);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	handle_lines(arg);
}

static void on_read(struct bufferevent *io, void *arg)
{
	handle_lines(arg);
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	struct engine_link *link = arg;

	link->eof = true;
	handle_lines(link);
}

static int fork_engine(struct engine_link *link, int fds[2])
{
	int out_fd = engine_output_fd(link->output);
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		become_engine(link, fds[1], out_fd, parent);
	setpgid(pid, pid); /* on the first of the two; not before it could be killed */
	link->pid = pid;
	engine_output_started(link->output, pid);
	return 0;
}

static void free_link(struct engine_link *link)
{
	if (link->remote) {
		free(link);
		return;
	}
	bufferevent_free(link->io);
	event_free(link->again);
	munmap(link->exec_errno, sizeof(*link->exec_errno));
	frame_destroy(link->frame);
	engine_output_destroy(link->output);
	free(link);
}

int engine_link_create(const struct engine_link_options *options, struct engine_link **out)
{
	struct engine_link *link;
	char file[CGROUP_FILE_BYTES];
	int *exec_errno = mmap(NULL, sizeof(*exec_errno), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fds[2] = {-1, -1}, rc = -errno;

	if (exec_errno == MAP_FAILED)
		return rc;
	link = memory_zeroed(1, sizeof(*link));
	link->o = *options;
	link->exec_errno = exec_errno;
	snprintf(link->what, sizeof(link->what), "%s", options->what);
	strcpy(link->end, "runs");
	link->heard_ns = clock_mono_ns();
	link->oom_kills = cgroup_oom_kills("", file);
	link->frame = frame_create(PROTOCOL_LINE_MAX);
	link->again = event_new(options->base, -1, 0, on_again, link);
	rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
	if (rc == 0)
		rc = engine_output_create(options->base, link->what, &link->output);
	if (fds[0] >= 0)
		evutil_make_socket_nonblocking(fds[0]);
	link->io = bufferevent_socket_new(options->base, fds[0], BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(link->io, on_read, NULL, on_event, link);
	if (rc == 0)
		rc = fork_engine(link, fds);
	if (fds[1] >= 0)
		close(fds[1]);
	if (rc < 0) {
		free_link(link);
		return rc;
	}
	bufferevent_enable(link->io, EV_READ | EV_WRITE);
	*out = link;
	return 0;
}

int engine_link_create_rank(const struct engine_link_options *options,
	const struct engine_link_rank *rank, struct engine_link **out)
{
	const int numbers[] = {
		rank->rank, rank->local_rank, rank->ranks, rank->threads, rank->peak_tflops};
	char text[sizeof(numbers) / sizeof(numbers[0])][16];
	const char *argv[] = {options->program, "--role", "rank", "--rank", text[0], "--local-rank",
		text[1], "--ranks", text[2], "--threads", text[3], "--peak-tflops", text[4],
		"--tuning-dir", rank->tuning_dir, rank->interface != NULL ? "--interface" : NULL,
		rank->interface, NULL};
	struct engine_link_options o = *options;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		snprintf(text[i], sizeof(text[i]), "%d", numbers[i]);
	o.argv = argv;
	return engine_link_create(&o, out);
}

struct engine_link *engine_link_create_remote(const struct engine_link_options *options)
{
	struct engine_link *link = memory_zeroed(1, sizeof(*link));

	link->o = *options;
	link->remote = true;
	snprintf(link->what, sizeof(link->what), "%s", options->what);
	strcpy(link->end, "runs");
	link->heard_ns = clock_mono_ns();
	return link;
}

void engine_link_remote_started(struct engine_link *link, pid_t pid)
{
	link->pid = pid;
}

void engine_link_remote_message(struct engine_link *link, const char *method, json_t *params)
{
	if (link->broken)
		return;
	link->heard_ns = clock_mono_ns();
	keep_words(link, method, params);
	link->in_lines = true;
	link->o.message(link, method, params, link->o.arg);
	link->in_lines = false;
	if (link->dead)
		engine_link_destroy(link);
}

void engine_link_remote_broken(struct engine_link *link, const char *why)
{
	report_broken(link, why);
}

void engine_link_remote_ended(struct engine_link *link, const char *end, bool blames_peer)
{
	snprintf(link->end, sizeof(link->end), "%s", end);
	link->blames_peer = blames_peer;
	link->remote_ended = true;
	link->pid = 0;
}

void engine_link_destroy(struct engine_link *link)
{
	if (link == NULL)
		return;
	if (link->in_lines) {
		link->dead = true;
		return;
	}
	if (link->pid > 0 && !link->remote) {
		engine_link_kill(link);
		while (waitpid(link->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (!link->remote)
		engine_output_end(link->output);
	free_link(link);
}

void engine_link_send(struct engine_link *link, const char *method, json_t *params)
{
	size_t n = 0;
	char *line = rpc_notification(method, params, &n);

	if (link->broken || evbuffer_get_length(bufferevent_get_output(link->io)) > OUTPUT_MAX ||
		bufferevent_write(link->io, line, n) < 0) {
		log_write(LOG_WARNING, "%s: %s was not sent", link->what, method);
		link->unsent = true; /* the sender is not called back from within its call */
		event_active(link->again, 0, 0);
	}
	free(line);
}

void engine_link_kill(struct engine_link *link)
{
	if (link->pid > 0 && !link->remote)
		kill(-link->pid, SIGKILL);
}

pid_t engine_link_pid(const struct engine_link *link)
{
	return link->pid;
}

int64_t engine_link_heard_ns(const struct engine_link *link)
{
	return link->heard_ns;
}

static const char *exit_meaning(int status)
{
	switch (status) {
	case ENGINE_EXIT_USAGE:
		return " (refused its arguments)";
	case ENGINE_EXIT_PEER_LOST:
		return " (a peer went away)";
	case ENGINE_EXIT_POISONED:
		return " (a new process is needed)";
	case ENGINE_EXIT_ORPHAN:
		return " (gpt2d went away)";
	case ENGINE_EXIT_BOOTSTRAP:
		return " (ranks could not reach each other)";
	case ENGINE_EXIT_LOADER:
		return " (it or one of its shared libraries cannot be loaded: gpt2d --check names "
		       "the packages)";
	default:
		return "";
	}
}

bool engine_link_ended(const struct engine_link *link)
{
	siginfo_t info = {0};

	if (link->remote)
		return link->remote_ended;
	return link->pid == 0 ||
		(waitid(P_PID, (id_t)link->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid != 0);
}

void engine_link_drain(struct engine_link *link)
{
	int fd = link->remote ? -1 : bufferevent_getfd(link->io);
	char piece[16384];
	ssize_t n = 1;

	if (link->in_lines || link->remote)
		return;
	engine_output_drain(link->output);
	take_lines(link, INT_MAX); /* lines that were read come first */
	for (size_t all = 0; n > 0 && all < DRAIN_MAX && !link->broken && !link->dead;
		all += (size_t)n) {
		n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
		if (n <= 0)
			break;
		frame_feed(link->frame, piece, (size_t)n);
		take_lines(link, INT_MAX);
	}
	if (link->dead)
		engine_link_destroy(link);
}

/* The kernel gives no reason for SIGKILL, but counts the processes that it killed. */
static void say_signal(struct engine_link *link, int number)
{
	struct cgroup_memory limit = {.limit_bytes = 0};
	char file[CGROUP_FILE_BYTES];
	int n = snprintf(link->end, sizeof(link->end), "killed by signal %d", number);
	int64_t kills = number == SIGKILL ? cgroup_oom_kills("", file) : -ENOENT;

	if (number == SIGXFSZ)
		snprintf(link->end + n, sizeof(link->end) - (size_t)n, " (%s)", store_too_large);
	if (link->oom_kills < 0 || kills <= link->oom_kills)
		return;
	n += snprintf(link->end + n, sizeof(link->end) - (size_t)n,
		" (out of memory: oom_kill in %s was %" PRId64 ", is %" PRId64, file,
		link->oom_kills, kills);
	if (cgroup_memory_read("", &limit) == 0)
		n += snprintf(link->end + n, sizeof(link->end) - (size_t)n,
			"; limit %" PRId64 " bytes", limit.limit_bytes);
	snprintf(link->end + n, sizeof(link->end) - (size_t)n, ")");
}

static void say_exit(struct engine_link *link, int status)
{
	char starved[192] = "";

	/* its limits are those from here */
	if (status == ENGINE_EXIT_STARVED)
		snprintf(starved, sizeof(starved), " (%s)", starved_text(-EAGAIN));
	snprintf(link->end, sizeof(link->end), "exited with status %d%s%s%s%s", status,
		exit_meaning(status), starved, link->words[0] != '\0' ? ": " : "", link->words);
}

bool engine_link_reap(struct engine_link *link)
{
	int status;

	if (link->remote || link->pid == 0)
		return engine_link_ended(link);
	if (!engine_link_ended(link))
		return false;
	engine_link_kill(link); /* kill its children, while its process ID is still taken */
	if (waitpid(link->pid, &status, WNOHANG) <= 0)
		return false;
	link->pid = 0;
	engine_output_end(link->output);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXEC_FAILED && *link->exec_errno != 0)
		snprintf(link->end, sizeof(link->end), "could not be started: %.640s: %s",
			link->o.program, strerror(*link->exec_errno));
	else if (WIFSIGNALED(status))
		say_signal(link, WTERMSIG(status));
	else
		say_exit(link, WEXITSTATUS(status));
	link->blames_peer = WIFEXITED(status) && WEXITSTATUS(status) == ENGINE_EXIT_PEER_LOST;
	return true;
}

const char *engine_link_end(const struct engine_link *link)
{
	return link->end;
}

bool engine_link_blames_peer(const struct engine_link *link)
{
	return link->blames_peer;
}

void engine_link_check_build(
	const struct engine_link *link, json_t *params, char *why, size_t why_bytes)
{
	json_t *build = json_object_get(params, "build");
	json_t *protocol = json_object_get(params, "protocol");
	char is[100] = "", ours[400];

	why[0] = '\0';
	if (json_integer_value(protocol) != PROTOCOL_VERSION)
		snprintf(is, sizeof(is), "speaks protocol %lld, gpt2d speaks %d",
			(long long)json_integer_value(protocol), PROTOCOL_VERSION);
	else if (json_is_string(build) && strcmp(json_string_value(build), version_build) != 0)
		snprintf(is, sizeof(is), "is build %.32s, gpt2d is build %.32s",
			json_string_value(build), version_build);
	else
		return;
	procfs_describe(getpid(), ours, sizeof(ours));
	snprintf(why, why_bytes, "%s (engine: %.300s, pid %d; gpt2d: %s); " ENGINE_LINK_CURE, is,
		link->o.program, (int)link->pid, ours);
}

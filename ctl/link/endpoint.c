#include "ctl/link/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "ctl/print/term.h"

static const char system_socket[] = "/run/gpt2d/gpt2d.sock";

/* ---- which ---- */

/* The user's own in the folder xdg where it is there, else the system's: the length of its path. */
static int look(const char *xdg, char path[PATH_MAX], struct endpoint *p)
{
	if (xdg && *xdg == '/') { /* others are ignored, as by gpt2d */
		const int n = snprintf(path, PATH_MAX, "%s/gpt2d/gpt2d.sock", xdg);

		if (n < PATH_MAX && access(path, F_OK) == 0)
			return n;
		memcpy(p->own, path, sizeof(p->own));
	}
	return snprintf(path, PATH_MAX, "%s", system_socket);
}

int endpoint_find(const struct ctl *ctl, struct endpoint *out, struct ctl_error *e)
{
	const char *env = getenv("GPT2D_SOCKET");
	const char *named = env && *env ? env : NULL;
	const size_t max = sizeof(out->path) - 1;
	char path[PATH_MAX] = "";
	int n;

	if (ctl->socket)
		named = ctl->socket;
	*out = (struct endpoint){.named = named != NULL};
	n = named ? snprintf(path, sizeof(path), "%s", named)
		  : look(getenv("XDG_RUNTIME_DIR"), path, out);
	if (n == 0)
		return ctl_error_set(e, CTL_USAGE, "--socket: a path is needed");
	if ((size_t)n > max)
		return ctl_error_set(e, CTL_USAGE,
			"%.200s: a socket's path has at most %zu bytes, this has %d", path, max, n);
	memcpy(out->path, path, (size_t)n);
	return 0;
}

/* ---- who ---- */

void endpoint_ask(struct endpoint *p, int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 0)
		p->pid = peer.pid;
}

/* By the kernel's list of locks, which anybody may read: who holds that of st; 0: not found. */
static pid_t holder_of(const struct stat *st)
{
	FILE *locks = fopen("/proc/locks", "re");
	unsigned major_of, minor_of;
	unsigned long inode;
	pid_t holder = 0;
	char line[256];
	long pid;

	if (!locks)
		return 0;
	while (!holder && fgets(line, sizeof(line), locks)) {
		/* "1: FLOCK  ADVISORY  WRITE 708 08:01:1311 0 EOF" */
		if (sscanf(line, "%*d: FLOCK %*s WRITE %ld %x:%x:%lu", &pid, &major_of, &minor_of,
			    &inode) == 4 &&
			inode == st->st_ino && makedev(major_of, minor_of) == st->st_dev)
			holder = (pid_t)pid;
	}
	fclose(locks);
	return holder;
}

/*
 * The gpt2d that owns the socket's name: it holds the lock of path.lock (daemon/config/place.h).
 * 0: there is none, or it belongs to another user and cannot be found.
 */
static pid_t owner_of(const struct endpoint *p)
{
	char lock[sizeof(p->path) + 8], text[32] = "";
	struct stat st;
	pid_t owner = 0;
	int fd;

	snprintf(lock, sizeof(lock), "%s.lock", p->path);
	fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == EACCES && stat(lock, &st) == 0 ? holder_of(&st) : 0;
	/* one that takes the lock meanwhile tries for longer than this lasts */
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK &&
		read(fd, text, sizeof(text) - 1) > 0)
		owner = (pid_t)atoi(text);
	close(fd);
	return owner;
}

/* The state of a process as ps(1) shows it; '?': not known. */
static char state_of(pid_t pid)
{
	char path[64], line[512] = "", state = '?';
	const char *end;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	stat = fopen(path, "re");
	if (!stat)
		return '?';
	if (fgets(line, sizeof(line), stat)) {
		end = strrchr(line, ')'); /* its name may hold anything */
		if (end && end[1] == ' ' && end[2] != '\0')
			state = end[2];
	}
	fclose(stat);
	return state;
}

static bool is_stopped(pid_t pid)
{
	const char state = pid > 0 ? state_of(pid) : '?';

	return state == 'T' || state == 't';
}

bool endpoint_is_stopped(const struct endpoint *p)
{
	return is_stopped(p->pid);
}

enum { COMM_BYTES = 32 };

/*
 * Whether what listens there is no gpt2d, as far as can be told: it is not called so, and does not
 * hold the socket's lock. What it is called is put to comm.
 */
static bool is_stranger(const struct endpoint *p, char comm[COMM_BYTES])
{
	char path[64], line[COMM_BYTES] = "";
	FILE *file;

	if (p->pid <= 0 || owner_of(p) == p->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/comm", (long)p->pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	term_clean(line, comm, COMM_BYTES);
	return *comm && strcmp(comm, "gpt2d") != 0;
}

static const char *process_text(pid_t pid, char *out, size_t out_bytes)
{
	out[0] = '\0';
	if (pid > 0)
		snprintf(out, out_bytes, " (process %ld)", (long)pid);
	return out;
}

/* ---- what to say ---- */

/* Names each place that was looked at. */
static int not_running(const struct endpoint *p, int error, struct ctl_error *e)
{
	const bool placeless = !p->named && !*p->own && geteuid() != 0;
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	return ctl_error_set(e, CTL_NO_DAEMON,
		"gpt2d is not running (%.400s%s%s: %s)\n"
		"%s%s%s"
		"start one with: gpt2d --ranks N\n"
		"or name another's socket: --socket PATH, or GPT2D_SOCKET",
		p->own, *p->own ? ": No such file or directory; " : "", p->path, strerror(error),
		placeless ? "XDG_RUNTIME_DIR is not " : "",
		!placeless          ? ""
			: xdg && *xdg ? "an absolute path"
				      : "set",
		placeless ? ": say where a gpt2d of your own has its socket, for it and for "
			    "gpt2ctl: export GPT2D_SOCKET=PATH\n"
			  : "");
}

int endpoint_absent(const struct endpoint *p, int error, struct ctl_error *e)
{
	struct stat st;
	pid_t owner;

	if ((error == ECONNREFUSED || error == EACCES) && stat(p->path, &st) == 0 &&
		!S_ISSOCK(st.st_mode))
		return ctl_error_set(e, CTL_NO_DAEMON,
			"%s: a %s, the socket of a gpt2d is expected", p->path,
			S_ISDIR(st.st_mode) ? "directory" : "file");
	if (error == EACCES || error == EPERM)
		return ctl_error_set(e, CTL_NOT_ALLOWED,
			"%s: %s; socket_mode and socket_group of that gpt2d say who may use it",
			p->path, strerror(error));
	owner = owner_of(p);
	if (owner > 0)
		return ctl_error_set(e, CTL_NO_DAEMON,
			"gpt2d (process %ld) holds %s.lock, but does not listen on its socket "
			"(%s)\n"
			"it is starting or ending, or the socket was removed: gpt2d binds it again "
			"within 2 s",
			(long)owner, p->path, strerror(error));
	return not_running(p, error, e);
}

const char endpoint_time_over[] = "the time given is over: ";

int endpoint_silent(const struct endpoint *p, double seconds, bool own, struct ctl_error *e)
{
	const char *over = own ? endpoint_time_over : "";
	const pid_t pid = p->pid > 0 ? p->pid : owner_of(p);
	char process[48], comm[COMM_BYTES];

	process_text(pid, process, sizeof(process));
	if (is_stopped(pid))
		return ctl_error_set(e, CTL_TIMEOUT,
			"%sgpt2d%s has not answered on %s for %.3g s: it is stopped\n"
			"let it go on with: kill -CONT %ld",
			over, process, p->path, seconds, (long)pid);
	if (own) /* which may have been too short for anybody */
		return ctl_error_set(e, CTL_TIMEOUT,
			"%sgpt2d%s has not answered on %s within %.3g s\n"
			"whether it answers at all: gpt2ctl status",
			over, process, p->path, seconds);
	if (pid <= 0)
		return ctl_error_set(e, CTL_TIMEOUT, "gpt2d has not answered on %s for %.3g s",
			p->path, seconds);
	if (is_stranger(p, comm))
		return ctl_error_set(e, CTL_TIMEOUT,
			"process %ld (%s), which listens on %s, has not answered for %.3g s; it is "
			"no gpt2d as far as can be told\n"
			"name a gpt2d's socket: --socket PATH, or GPT2D_SOCKET",
			(long)p->pid, comm, p->path, seconds);
	return ctl_error_set(e, CTL_TIMEOUT,
		"gpt2d%s has not answered on %s for %.3g s\n"
		"its log may say why, and: ps -o pid,stat,wchan:32,args -p %ld\n"
		"if it does not come back: kill -KILL %ld, and start it anew; what it has accepted "
		"is on disk",
		process, p->path, seconds, (long)pid, (long)pid);
}

void endpoint_notice(const struct endpoint *p, FILE *to, const char *asked, double seconds)
{
	char process[48], advice[80] = "";
	const bool stopped = endpoint_is_stopped(p);

	process_text(p->pid, process, sizeof(process));
	if (stopped)
		snprintf(advice, sizeof(advice),
			"; it is stopped, let it go on with: kill -CONT %ld", (long)p->pid);
	else if (asked)
		snprintf(advice, sizeof(advice), "; what it waits for: gpt2ctl status");
	if (asked)
		fprintf(to,
			"gpt2ctl: still waiting: gpt2d%s has not answered %s on %s yet; up to %.3g "
			"s more%s\n",
			process, asked, p->path, seconds, advice);
	else
		fprintf(to,
			"gpt2ctl: gpt2d%s has not answered on %s yet; waiting up to %.3g s "
			"more%s\n",
			process, p->path, seconds, advice);
	fflush(to);
}

void endpoint_answers(const struct endpoint *p, FILE *to)
{
	char process[48];

	fprintf(to, "gpt2ctl: gpt2d%s answers again\n",
		process_text(p->pid, process, sizeof(process)));
	fflush(to);
}

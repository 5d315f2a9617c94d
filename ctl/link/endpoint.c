#include "ctl/link/endpoint.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char system_socket[] = "/run/gpt2d/gpt2d.sock";
static const char system_settings[] = "/etc/gpt2d/gpt2d.conf";

/* The user's own socket below xdg if it exists, else the system's: the length of the path. */
static int default_path(const char *xdg, char path[PATH_MAX], struct endpoint *p)
{
	if (xdg && *xdg == '/') { /* gpt2d ignores a relative one too */
		const int n = snprintf(path, PATH_MAX, "%s/gpt2d/gpt2d.sock", xdg);

		if (n < PATH_MAX && access(path, F_OK) == 0)
			return n;
		memcpy(p->own, path, sizeof(p->own));
	}
	return snprintf(path, PATH_MAX, "%s", system_socket);
}

int endpoint_find(const char *socket, struct endpoint *out, struct ctl_error *e)
{
	const char *env = getenv("GPT2D_SOCKET");
	const char *named = socket ? socket : env && *env ? env : NULL;
	const size_t max = sizeof(out->path) - 1;
	char path[PATH_MAX] = "";
	int n;

	*out = (struct endpoint){.named = named != NULL};
	n = named ? snprintf(path, sizeof(path), "%s", named)
		  : default_path(getenv("XDG_RUNTIME_DIR"), path, out);
	if (n == 0)
		return ctl_error_set(e, CTL_USAGE, "--socket: missing path");
	if ((size_t)n > max)
		return ctl_error_set(e, CTL_USAGE,
			"%.200s: path too long for a socket (at most %zu bytes, found %d)", path,
			max, n);
	memcpy(out->path, path, (size_t)n);
	return 0;
}

/* ---- the process ---- */

void endpoint_identify(struct endpoint *p, int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 0)
		p->pid = peer.pid;
}

bool endpoint_is_stopped(const struct endpoint *p)
{
	char path[64], line[512] = "";
	const char *end;
	FILE *stat;

	if (p->pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)p->pid);
	stat = fopen(path, "re");
	if (!stat)
		return false;
	if (!fgets(line, sizeof(line), stat))
		line[0] = '\0';
	fclose(stat);
	end = strrchr(line, ')'); /* the process name before it may contain any character */
	return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

/* ---- messages ---- */

static int not_running(const struct endpoint *p, int error, struct ctl_error *e)
{
	ctl_error_set(e, CTL_NO_DAEMON, "gpt2d is not running (%.400s%s%s: %s)", p->own,
		*p->own ? ": No such file or directory; " : "", p->path, strerror(error));
	if (!p->named && !*p->own && geteuid() != 0)
		ctl_error_add(e,
			"XDG_RUNTIME_DIR is not set to an absolute path; choose a socket for gpt2d "
			"and gpt2ctl: export GPT2D_SOCKET=PATH");
	if (!p->named && access(system_settings, F_OK) == 0)
		ctl_error_add(e, "start the service with: systemctl start gpt2d");
	else
		ctl_error_add(e,
			"start gpt2d with: gpt2d --ranks N\n"
			"if it is starting, wait for it: gpt2ctl status --wait 30");
	return ctl_error_add(e, "or use another socket: --socket PATH, or GPT2D_SOCKET");
}

/* The socket's group counts when a session begins, so new members must log in again. */
static int not_allowed(const struct endpoint *p, int error, struct ctl_error *e)
{
	struct stat st;
	const struct group *group = NULL;

	if (stat(p->path, &st) == 0 && (st.st_mode & S_IWGRP) != 0)
		group = getgrgid(st.st_gid);
	ctl_error_set(e, CTL_NOT_ALLOWED, "%s: %s", p->path, strerror(error));
	if (group != NULL)
		return ctl_error_add(e,
			"members of the group %s may connect (gpt2d's setting socket_group)\n"
			"root adds a member with: adduser NAME %s; then NAME logs in again",
			group->gr_name, group->gr_name);
	return ctl_error_add(
		e, "gpt2d's settings socket_mode and socket_group decide who may use it");
}

int endpoint_unreachable(const struct endpoint *p, int error, struct ctl_error *e)
{
	struct stat st;

	if (stat(p->path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return ctl_error_set(e, CTL_NO_DAEMON, "%s: not a socket (found a %s)", p->path,
			S_ISDIR(st.st_mode) ? "directory" : "file");
	if (error == EACCES || error == EPERM)
		return not_allowed(p, error, e);
	return not_running(p, error, e);
}

static const char *process_text(const struct endpoint *p, char out[48])
{
	out[0] = '\0';
	if (p->pid > 0)
		snprintf(out, 48, " (process %ld)", (long)p->pid);
	return out;
}

int endpoint_timed_out(const struct endpoint *p, double seconds, bool limited, struct ctl_error *e)
{
	char process[48];

	ctl_error_set(e, CTL_TIMEOUT, "%sgpt2d%s has not answered on %s for %.*f s",
		limited ? "time limit: " : "", process_text(p, process), p->path,
		seconds < 10 ? 1 : 0, seconds);
	if (endpoint_is_stopped(p))
		return ctl_error_add(
			e, "gpt2d is stopped; continue it with: kill -CONT %ld", (long)p->pid);
	if (limited || p->pid <= 0)
		return ctl_error_add(e, "check gpt2d with: gpt2ctl status");
	return ctl_error_add(
		e, "see gpt2d's log, and: ps -o pid,stat,wchan:32,args -p %ld", (long)p->pid);
}

void endpoint_print_waiting(const struct endpoint *p, FILE *to, const char *asked, double seconds)
{
	char process[48];

	fprintf(to, "gpt2ctl: still waiting: gpt2d%s has not answered %s%son %s for %.0f s",
		process_text(p, process), asked ? asked : "", asked ? " " : "", p->path, seconds);
	if (endpoint_is_stopped(p))
		fprintf(to, "; gpt2d is stopped, continue it with: kill -CONT %ld", (long)p->pid);
	fputc('\n', to);
	fflush(to);
}

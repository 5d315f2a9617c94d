#include "ctl/link/pulse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/link/greeting.h"
#include "proto/host/clock.h"
#include "proto/protocol.h"
#include "proto/rpc.h"

static const int64_t look_ns = CLOCK_S_NS;       /* between two looks at a silence */
static const int64_t unseen_ns = 3 * CLOCK_S_NS; /* what lies between two counts for no more */

static void forget_beside(struct pulse *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

void pulse_begin(struct pulse *p, const struct endpoint *endpoint, FILE *to)
{
	*p = (struct pulse){.endpoint = endpoint, .to = to, .fd = -1};
}

void pulse_end(struct pulse *p)
{
	forget_beside(p);
}

static void tell(struct pulse *p, bool silent)
{
	struct ctl_error e = {0};

	p->told = silent;
	if (!p->to)
		return;
	if (p->before)
		p->before(p->arg);
	if (silent) {
		endpoint_silent(p->endpoint, (double)p->silent_ns / 1e9, false, &e);
		fprintf(p->to,
			"gpt2ctl: %s\ngpt2ctl goes on waiting; Ctrl-C ends gpt2ctl alone\n",
			e.message);
	} else {
		endpoint_answers(p->endpoint, p->to);
	}
	fflush(p->to);
}

/* It need not be asked for a while. */
static void postpone(struct pulse *p)
{
	forget_beside(p);
	p->wanted = p->asked = false;
	p->quiet_ns = clock_mono_ns() + PULSE_QUIET_S * CLOCK_S_NS;
}

void pulse_heard(struct pulse *p)
{
	postpone(p);
	if (p->told)
		tell(p, false);
}

int64_t pulse_see(struct pulse *p)
{
	const int64_t now_ns = clock_mono_ns(), since_ns = now_ns - p->seen_ns;
	int64_t left_ns;

	if (!p->wanted && now_ns < p->quiet_ns)
		return p->quiet_ns;
	if (!p->wanted)
		p->silent_ns = 0;
	else
		p->silent_ns += since_ns < unseen_ns ? since_ns : unseen_ns;
	p->seen_ns = now_ns;
	p->wanted = true;
	left_ns = PULSE_SILENT_S * CLOCK_S_NS - p->silent_ns;
	if (left_ns <= 0 && !p->told)
		tell(p, true);
	if (p->told && p->asked)
		return -1;
	return now_ns + (left_ns > 0 && left_ns < look_ns ? left_ns : look_ns);
}

/* ---- on a connection beside ---- */

static int reach(const struct pulse *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, p->endpoint->path, sizeof(address.sun_path));
	return connect(p->fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
}

static bool say_hello(const struct pulse *p)
{
	size_t n = 0;
	char *line = rpc_request(1, METHOD_HELLO, greeting_params(), &n);
	const bool sent = line && send(p->fd, line, n, MSG_NOSIGNAL) == (ssize_t)n;

	free(line);
	return sent;
}

void pulse_ask_beside(struct pulse *p)
{
	int error;

	p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	error = p->fd < 0 ? -errno : reach(p);
	p->asked = error == 0 && say_hello(p);
	if (p->asked)
		return;
	if (error == -EAGAIN) /* too many wait to be let in, as where nobody lets them in */
		forget_beside(p);
	else
		postpone(p);
}

void pulse_read_beside(struct pulse *p)
{
	char bytes[512];
	const ssize_t n = recv(p->fd, bytes, sizeof(bytes), 0);

	if (n > 0)
		pulse_heard(p);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		postpone(p);
}

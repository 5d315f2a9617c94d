#include "ctl/link/interrupt.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "proto/host/clock.h"

enum { GRACE_S = 10 }; /* from a signal to the end of a process that hangs elsewhere */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static volatile sig_atomic_t seen;     /* the signal's number */
static volatile sig_atomic_t reported; /* the waiting code has reported it */

static struct {
	int fd;
	bool (*is_key)(void *of);
	void *of;
} keyboard = {.fd = -1};

static void on_signal(int number)
{
	if (seen)
		return;
	seen = number;
	alarm(GRACE_S);
}

static void on_alarm(int number)
{
	(void)number;
	signal(seen, SIG_DFL);
	raise(seen);
}

static void take(int number, void (*called)(int))
{
	struct sigaction action = {.sa_handler = called, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

/* Signals that the parent ignores, as with nohup, stay ignored: a closed terminal ends nothing. */
static bool is_nohup(int number)
{
	struct sigaction now;

	return number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void interrupt_begin(void)
{
	take(SIGALRM, on_alarm);
	for (int i = 0; i < SIGNALS; i++)
		if (!is_nohup(signals[i]))
			take(signals[i], on_signal);
}

void interrupt_end(void)
{
	for (int i = 0; i < SIGNALS; i++)
		if (!is_nohup(signals[i]))
			signal(signals[i], SIG_DFL);
	if (seen && !reported)
		raise(seen);
}

bool interrupt_seen(void)
{
	if (seen)
		reported = 1;
	return seen != 0;
}

void interrupt_on_key(int fd, bool (*is_key)(void *of), void *of)
{
	keyboard.fd = fd;
	keyboard.is_key = is_key;
	keyboard.of = of;
}

/* ppoll including the keyboard: -1 and EINTR for its key; other keys do not end the wait. */
static int poll_keyboard(struct pollfd *fds, size_t n, int64_t timeout_ns, const sigset_t *open)
{
	const int64_t until_ns = timeout_ns < 0 ? -1 : clock_mono_ns() + timeout_ns;
	struct pollfd all[INTERRUPT_FDS + 1];
	int rc;

	assert(n <= INTERRUPT_FDS);
	for (size_t i = 0; i < n; i++)
		all[i] = fds[i];
	all[n] = (struct pollfd){.fd = keyboard.fd, .events = POLLIN};
	do {
		const int64_t left_ns = until_ns < 0 ? 0 : until_ns - clock_mono_ns();
		const struct timespec left = clock_timespec(left_ns < 0 ? 0 : left_ns);

		rc = ppoll(all, n + 1, until_ns < 0 ? NULL : &left, open);
		if (rc <= 0 || !all[n].revents)
			break;
		if ((all[n].revents & (POLLHUP | POLLERR)) || keyboard.is_key(keyboard.of)) {
			on_signal(SIGINT);
			errno = EINTR;
			rc = -1;
			break;
		}
		rc--;
	} while (rc == 0);
	for (size_t i = 0; i < n; i++)
		fds[i].revents = all[i].revents;
	return rc;
}

int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns)
{
	sigset_t set, open;
	int rc, error;

	/* no signal comes between the check and the sleep */
	sigemptyset(&set);
	for (int i = 0; i < SIGNALS; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, &open);
	if (seen && !reported) {
		rc = -1;
		error = EINTR;
	} else {
		rc = poll_keyboard(fds, n, timeout_ns, &open);
		error = errno;
	}
	if (rc < 0 && error == EINTR)
		interrupt_seen();
	sigprocmask(SIG_SETMASK, &open, NULL);
	errno = error;
	return rc;
}

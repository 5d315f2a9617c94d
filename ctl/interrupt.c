#include "ctl/interrupt.h"

#include <signal.h>

#include "proto/clock.h"

static volatile sig_atomic_t seen;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static void on_signal(int number)
{
	(void)number;
	seen = 1;
}

void interrupt_begin(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t set;

	sigemptyset(&action.sa_mask);
	sigemptyset(&set);
	for (int i = 0; i < SIGNALS; i++) {
		sigaction(signals[i], &action, NULL);
		sigaddset(&set, signals[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
}

void interrupt_end(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (int i = 0; i < SIGNALS; i++) {
		signal(signals[i], SIG_DFL);
		sigaddset(&set, signals[i]);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

bool interrupt_seen(void)
{
	sigset_t pending;

	if (seen || sigpending(&pending) != 0)
		return seen != 0;
	/* events that come without a pause leave no moment to sleep in */
	for (int i = 0; i < SIGNALS; i++)
		if (sigismember(&pending, signals[i]) == 1)
			return true;
	return false;
}

int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns)
{
	const struct timespec timeout = clock_timespec(timeout_ns < 0 ? 0 : timeout_ns);
	sigset_t open;

	sigprocmask(SIG_SETMASK, NULL, &open);
	for (int i = 0; i < SIGNALS; i++)
		sigdelset(&open, signals[i]);
	return ppoll(fds, n, timeout_ns < 0 ? NULL : &timeout, &open);
}

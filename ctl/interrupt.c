#include "ctl/interrupt.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t seen;

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
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

bool interrupt_seen(void)
{
	sigset_t pending;

	/* events that come without a pause leave no moment to sleep in */
	if (!seen && sigpending(&pending) == 0)
		return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
	return seen != 0;
}

int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns)
{
	const struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
	sigset_t open;

	sigprocmask(SIG_SETMASK, NULL, &open);
	sigdelset(&open, SIGINT);
	sigdelset(&open, SIGTERM);
	return ppoll(fds, n, timeout_ns < 0 ? NULL : &timeout, &open);
}

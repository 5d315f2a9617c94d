#include "ctl/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "proto/clock.h"

enum { GRACE_S = 10 }; /* from a signal to the end of a process that hangs elsewhere */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static volatile sig_atomic_t seen; /* the signal's number */
static volatile sig_atomic_t told; /* whoever waits knows */

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

/* Ignored by who started gpt2ctl, as nohup does: a terminal that goes ends nothing. */
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
	if (seen && !told)
		raise(seen);
}

bool interrupt_seen(void)
{
	if (seen)
		told = 1;
	return seen != 0;
}

int interrupt_poll(struct pollfd *fds, size_t n, int64_t timeout_ns)
{
	const struct timespec timeout = clock_timespec(timeout_ns < 0 ? 0 : timeout_ns);
	sigset_t set, open;
	int rc, error;

	/* none comes between the look and the sleep */
	sigemptyset(&set);
	for (int i = 0; i < SIGNALS; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, &open);
	if (seen && !told) {
		rc = -1;
		error = EINTR;
	} else {
		rc = ppoll(fds, n, timeout_ns < 0 ? NULL : &timeout, &open);
		error = errno;
	}
	if (rc < 0 && error == EINTR)
		interrupt_seen();
	sigprocmask(SIG_SETMASK, &open, NULL);
	errno = error;
	return rc;
}

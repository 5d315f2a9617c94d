#include "proto/host/signals.h"

#include <signal.h>
#include <stddef.h>

void signals_unblock(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void ignore(int number)
{
	struct sigaction now;

	if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
		signal(number, SIG_IGN);
}

void signals_ignore(void)
{
	static const int numbers[] = {SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGUSR2, SIGPOLL, SIGPROF,
		SIGVTALRM, SIGXCPU, SIGXFSZ, SIGSTKFLT, SIGPWR};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		ignore(numbers[i]);
	for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
		ignore(number);
}

static volatile sig_atomic_t came[NSIG];

static void remember(int number)
{
	came[number] = 1;
}

void signals_hold(int number)
{
	struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

bool signals_came(int number)
{
	return came[number] != 0;
}

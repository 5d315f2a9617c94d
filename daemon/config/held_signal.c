#include "daemon/config/held_signal.h"

#include <signal.h>

static volatile sig_atomic_t came[NSIG];

static void remember(int number)
{
	came[number] = 1;
}

void held_signal_hold(int number)
{
	struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

bool held_signal_came(int number)
{
	return came[number] != 0;
}

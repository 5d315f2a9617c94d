#include "ctl/ask.h"

#include <poll.h>
#include <unistd.h>

#include "ctl/interrupt.h"

bool ask_answered(struct ctl *ctl)
{
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};

	interrupt_begin();
	if (interrupt_poll(&in, 1, -1) < 0) {
		fputc('\n', ctl->err.file);
		return false;
	}
	interrupt_end();
	return true;
}

#include "ctl/verbs/ask.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ctl/link/interrupt.h"

bool ask_yes(struct ctl *ctl, const char *question, ...)
{
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};
	char answer[16] = "";
	va_list args;

	interrupt_begin();
	va_start(args, question);
	vfprintf(ctl->err.file, question, args);
	va_end(args);
	fputs(" [y/N] ", ctl->err.file);
	fflush(ctl->err.file);
	if (interrupt_poll(&in, 1, -1) < 0) {
		fputc('\n', ctl->err.file);
		return false;
	}
	interrupt_end();
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

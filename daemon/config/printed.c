#include "daemon/config/printed.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

static ssize_t write_out(void *arg, const char *bytes, size_t n)
{
	struct printed *p = arg;
	size_t done = 0;
	ssize_t k;

	while (done < n && p->error == 0) {
		k = write(STDOUT_FILENO, bytes + done, n - done);
		if (k >= 0)
			done += (size_t)k;
		else if (errno != EINTR)
			p->error = -errno;
	}
	return p->error == 0 ? (ssize_t)n : 0;
}

int printed_begin(struct printed *p)
{
	static const cookie_io_functions_t functions = {.write = write_out};

	p->error = 0;
	p->to = fopencookie(p, "w", functions);
	if (p->to == NULL)
		return -ENOMEM;
	if (isatty(STDOUT_FILENO))
		setvbuf(p->to, NULL, _IOLBF, 0);
	return 0;
}

int printed_end(struct printed *p)
{
	if (fclose(p->to) != 0 && p->error == 0)
		p->error = -EIO;
	return p->error;
}

#include "engine/comm/nccl_log.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- lines ---- */

/* The text after `after` in the line, up to one of end; NULL: not in the line. */
static const char *text_after(const char *line, const char *after, const char *end, size_t *n)
{
	const char *at = strstr(line, after);

	if (at == NULL)
		return NULL;
	at += strlen(after);
	*n = strcspn(at, end);
	return at;
}

static void keep(char *out, size_t out_bytes, const char *text, size_t n)
{
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	while (n > 0 && isspace((unsigned char)*text)) {
		text++;
		n--;
	}
	snprintf(out, out_bytes, "%.*s", (int)n, text);
}

/* Adds a path to the list unless it is in it. */
static void add_path(struct collectives_network *network, const char *path)
{
	size_t n = strlen(path), used = strlen(network->paths);

	for (const char *at = network->paths; *at != '\0';) {
		size_t length = strcspn(at, ",");

		if (length == n && strncmp(at, path, n) == 0)
			return;
		at += length + (at[length] == ',');
	}
	if (used + n + 2 <= sizeof(network->paths))
		snprintf(network->paths + used, sizeof(network->paths) - used, "%s%s",
			used > 0 ? "," : "", path);
}

/* "NET/IB/0/GDRDMA": without the number of the device, which differs by channel. */
static void take_path(struct collectives_network *network, const char *path, size_t n)
{
	char whole[96], text[96] = "", *save = NULL;
	bool net = strncmp(path, "NET/", 4) == 0;
	size_t used = 0;

	snprintf(whole, sizeof(whole), "%.*s", (int)n, path);
	for (char *part = strtok_r(whole, "/", &save); part != NULL;
		part = strtok_r(NULL, "/", &save))
		if (!isdigit((unsigned char)*part))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
				used > 0 ? "/" : "", part);
	if (net && strstr(text, "GDRDMA") != NULL)
		network->gpu_direct = 1;
	else if (net && network->gpu_direct < 0)
		network->gpu_direct = 0;
	add_path(network, text);
}

/* "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>" */
static void take_devices(struct collectives_network *network, const char *line)
{
	size_t n;
	const char *devices =
		strncmp(line, "NET/", 4) == 0 ? text_after(line, " : Using", ";", &n) : NULL;

	if (devices != NULL)
		keep(network->devices, sizeof(network->devices), devices, n);
}

void nccl_log_take(struct collectives_network *network, const char *line)
{
	const char *said = strstr(line, "NCCL INFO "), *text;
	size_t n;

	if (said == NULL)
		return;
	said += strlen("NCCL INFO ");
	if ((text = text_after(said, "Using network ", "\n", &n)) != NULL ||
		(text = text_after(said, "Assigned NET plugin ", " \n", &n)) != NULL)
		keep(network->name, sizeof(network->name), text, n);
	else if (strncmp(said, "Channel ", 8) == 0 &&
		(text = text_after(said, " via ", " \n", &n)) != NULL)
		take_path(network, text, n);
	else
		take_devices(network, said);
}

/* ---- the log ---- */

void nccl_log_begin(struct nccl_log *l)
{
	const char *level = getenv("NCCL_DEBUG");
	char path[32];

	*l = (struct nccl_log){.fd = -1, .network.gpu_direct = -1};
	if (getenv("NCCL_DEBUG_FILE") != NULL)
		return;
	l->fd = memfd_create("nccl", MFD_CLOEXEC);
	if (l->fd < 0)
		return;
	if (level != NULL && (strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0)) {
		l->echo = NCCL_LOG_ALL;
	} else {
		l->echo = level != NULL ? NCCL_LOG_WARNINGS : NCCL_LOG_SILENT;
		setenv("NCCL_DEBUG", "INFO", 1);
		setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", l->fd);
	setenv("NCCL_DEBUG_FILE", path, 1);
}

static void end_line(struct nccl_log *l)
{
	bool info;

	l->line[l->n] = '\0';
	l->n = 0;
	info = strstr(l->line, "NCCL INFO ") != NULL;
	nccl_log_take(&l->network, l->line);
	if (l->echo == NCCL_LOG_ALL || (l->echo == NCCL_LOG_WARNINGS && !info))
		fprintf(stderr, "%s\n", l->line);
}

void nccl_log_read(struct nccl_log *l)
{
	char buf[4096];
	off_t before = l->at;
	ssize_t n;

	while (l->fd >= 0 && (n = pread(l->fd, buf, sizeof(buf), l->at)) > 0) {
		l->at += n;
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == '\n')
				end_line(l);
			else if (l->n + 1 < sizeof(l->line))
				l->line[l->n++] = buf[i];
		}
	}
	if (l->at > before) /* what was read needs no memory any more */
		fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, l->at);
}

void nccl_log_end(struct nccl_log *l)
{
	if (l->fd > 0)
		close(l->fd);
	l->fd = -1;
}

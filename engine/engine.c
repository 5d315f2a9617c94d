/*
 * gpt2-engine-cpu, gpt2-engine-cuda: a training engine under gpt2d, one process per rank. The
 * backend is the library that is linked. Not started by hand: descriptor 3 is the line to gpt2d
 * (proto/protocol.h).
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "engine/link.h"
#include "engine/rank.h"
#include "engine/ucx_library.h"
#include "proto/protocol.h"
#include "proto/spec.h"
#include "proto/starved.h"
#include "proto/version.h"

enum { LINK_FD = 3 };

/* A peer that says nothing for so long is lost. */
#define COLLECTIVE_TIMEOUT_NS INT64_C(60000000000)

struct arguments {
	bool check;
	struct warm_options warm;
};

/* What getopt knows and what --help prints. */
static const struct {
	const char *name, *arg; /* arg NULL: takes none */
	int key;
	const char *help;
} rows[] = {
	{"role", "ROLE", 'o', "rank: train as one of the ranks; check: check specs"},
	{"rank", "R", 'r', "which rank it is, from 0"},
	{"ranks", "N", 'n', "how many there are"},
	{"threads", "T", 't', "threads that compute"},
	{"tuning-dir", "DIR", 'u', "keep the algorithms of matrix products there"},
	{"no-graphs", NULL, 'G', "launch each operation, capture no step as a CUDA graph"},
	{"version", NULL, 'V', "print what this build is"},
	{"help", NULL, 'h', "print this"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void print_usage(FILE *out)
{
	fputs("usage: gpt2-engine --role rank --rank R --ranks N --threads T\n"
	      "                   [--tuning-dir DIR] [--no-graphs]\n"
	      "       gpt2-engine --role check [--threads T]\n"
	      "       gpt2-engine --version\n\n"
	      "gpt2d starts it, with a socket to itself as descriptor 3: gpt2-engine(8).\n\n",
		out);
	for (int i = 0; i < ROWS; i++)
		fprintf(out, "  --%-10s %-4s  %s\n", rows[i].name, rows[i].arg ? rows[i].arg : "",
			rows[i].help);
}

static int usage(const char *why)
{
	fprintf(stderr, "gpt2-engine: %s\n", why);
	print_usage(stderr);
	return ENGINE_EXIT_USAGE;
}

/* Between min and max, or -1. */
static int number(const char *text, int min, int max)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max)
		return -1;
	return (int)n;
}

static void print_version(void)
{
	struct ucx_library ucx;

	printf("gpt2-engine %s (%s)\n", VERSION_RELEASE, version_build);
	if (ucx_library_open(&ucx) == 0)
		printf("UCX %s\n", ucx.get_version_string());
}

static int read_arguments(int argc, char **argv, struct arguments *a)
{
	struct option options[ROWS + 1] = {{0}};
	const char *role = "";
	int c;

	for (int i = 0; i < ROWS; i++)
		options[i] = (struct option){rows[i].name,
			rows[i].arg ? required_argument : no_argument, NULL, rows[i].key};
	*a = (struct arguments){
		.warm = {.rank = -1, .world = -1, .threads = -1}};
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'o')
			role = optarg;
		else if (c == 'r')
			a->warm.rank = number(optarg, 0, SPEC_WORLD_MAX - 1);
		else if (c == 'n')
			a->warm.world = number(optarg, 1, SPEC_WORLD_MAX);
		else if (c == 't')
			a->warm.threads = number(optarg, 1, PROTOCOL_THREADS_MAX);
		else if (c == 'u')
			a->warm.tuning_dir = optarg;
		else if (c == 'G')
			a->warm.no_graphs = true;
		else if (c == 'V')
			return print_version(), -1;
		else if (c == 'h')
			return print_usage(stdout), -1;
		else
			return usage("an argument is not known");
	}
	if (optind < argc)
		return usage("an argument is not known");
	a->check = strcmp(role, "check") == 0;
	if (a->check) {
		if (a->warm.threads < 0)
			a->warm.threads = 1;
		return 0;
	}
	if (strcmp(role, "rank") != 0)
		return usage("--role: rank or check is needed");
	if (a->warm.rank < 0 || a->warm.world <= a->warm.rank || a->warm.threads < 0)
		return usage("--rank, --ranks, --threads: numbers are needed, rank below ranks");
	a->warm.collective_timeout_ns = COLLECTIVE_TIMEOUT_NS;
	return 0;
}

/* Not by exit: without peers, threads or memory a library's end may wait for ever. */
static void end(int code) __attribute__((noreturn));

static void end(int code)
{
	fflush(stdout);
	_exit(code);
}

int main(int argc, char **argv)
{
	struct arguments a;
	struct link *link;
	int code = read_arguments(argc, argv, &a), rc;

	if (code)
		end(code < 0 ? 0 : code);
	signal(SIGPIPE, SIG_IGN);
	/*
	 * what reaches every process of a group, a control group or a terminal is gpt2d's to
	 * handle: it lets a run end first, and ends its engines by their link
	 */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* some libraries print where nobody asked them to */
	rc = link_create(LINK_FD, &link);
	if (rc) {
		fprintf(stderr,
			"gpt2-engine: the line to gpt2d, descriptor 3 and its thread: %s\n",
			starved_text(rc));
		end(ENGINE_EXIT_POISONED);
	}
	code = a.check ? rank_check(link, a.warm.threads) : rank_run(link, &a.warm);
	link_destroy(link);
	if (code)
		end(code);
	return 0;
}

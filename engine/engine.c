/*
 * gpt2-engine-cpu, gpt2-engine-cuda: a training engine under gpt2d, one process per rank. The
 * backend is the linked library. Users do not start it: descriptor 3 is the connection to gpt2d
 * (proto/protocol.h).
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/link.h"
#include "engine/rank.h"
#include "engine/comm/ucx_library.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/host/signals.h"
#include "proto/options.h"
#include "proto/protocol.h"
#include "proto/spec/spec.h"
#include "proto/host/starved.h"
#include "proto/version.h"

enum { LINK_FD = 3 };

/*
 * A peer is lost after this time without a message, unless --silence sets another; gpt2-engine(8).
 */
enum { SILENCE_S = 60, IDLE_TEST_S = 600 };

struct arguments {
	const char *role;
	struct warm_options warm;
};

static const struct option_row rows[] = {
	{"role", 0, OPTION_CHOICE, "ROLE", 0, 0,
		"rank: train as one of the ranks; check: check specs; connect: only connect",
		.choices = "rank|check|connect"},
	{"rank", 0, OPTION_INT, "R", 0, SPEC_WORLD_MAX - 1,
		"the number of this rank among those of all nodes, from 0"},
	{"local-rank", 0, OPTION_INT, "L", 0, SPEC_WORLD_MAX - 1,
		"the number of its GPU on this node, from 0; by default R"},
	{"ranks", 0, OPTION_INT, "N", 1, SPEC_WORLD_MAX, "the number of ranks of all nodes"},
	{"interface", 0, OPTION_STRING, "IF", 0, 0,
		"network interface to ranks on other nodes; without it there are none"},
	{"silence", 0, OPTION_INT, "S", 1, 86400,
		"a peer is lost after S seconds without a message, by default 60"},
	{"idle-test", 0, OPTION_INT, "S", 0, 86400,
		"test a communicator that was idle for S seconds, by default 600; 0: never"},
	{"threads", 0, OPTION_INT, "T", 1, PROTOCOL_THREADS_MAX, "computing threads"},
	{"tuning-dir", 0, OPTION_STRING, "DIR", 0, 0,
		"folder of the tuned algorithms of matrix products"},
	{"peak-tflops", 0, OPTION_INT, "N", 0, 1000000,
		"peak TFLOP/s of a device, for MFU and HFU; 0: the peak of a known card"},
	{"no-graphs", 0, OPTION_FLAG, NULL, 0, 0,
		"launch each operation; do not capture steps as CUDA graphs"},
	{"version", 0, OPTION_FLAG, NULL, 0, 0, "print the version"},
	{"help", 0, OPTION_FLAG, NULL, 0, 0, "print this help"},
	{0},
};

static void print_usage(FILE *out)
{
	const char *name = program_invocation_short_name;
	char text[64];

	fprintf(out,
		"usage: %s --role rank --rank R --ranks N --threads T\n"
		"       %*s [--local-rank L] [--interface IF] [--silence S] [--idle-test S]\n"
		"       %*s [--tuning-dir DIR] [--peak-tflops N] [--no-graphs]\n"
		"       %s --role check [--threads T]\n"
		"       %s --role connect --rank R --ranks N [--interface IF]\n"
		"       %s --version\n\n"
		"gpt2d starts it, with its socket as descriptor 3: gpt2-engine(8).\n\n",
		name, (int)strlen(name), "", (int)strlen(name), "", name, name, name);
	for (const struct option_row *row = rows; row->name; row++)
		fprintf(out, "  %-16s  %s\n", options_format(row, text, sizeof(text)), row->help);
}

static int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	print_usage(stderr);
	return ENGINE_EXIT_USAGE;
}

static void print_version(void)
{
	struct ucx_library ucx;

	printf("gpt2-engine %s (%s)\n", VERSION_RELEASE, version_build);
	if (ucx_library_open(&ucx) == 0)
		printf("UCX %s\n", ucx.get_version_string());
}

/* 0, or the exit status. */
static int take_options(const struct options *o, struct arguments *a)
{
	a->role = options_string(o, "role", "");
	a->warm = (struct warm_options){
		.rank = (int)options_int(o, "rank", -1),
		.local_rank = (int)options_int(o, "local-rank", options_int(o, "rank", -1)),
		.world = (int)options_int(o, "ranks", -1),
		.threads = (int)options_int(o, "threads", strcmp(a->role, "rank") == 0 ? -1 : 1),
		.tuning_dir = options_string(o, "tuning-dir", NULL),
		.peak_tflops = (double)options_int(o, "peak-tflops", 0),
		.no_graphs = options_has(o, "no-graphs"),
		.interface = options_string(o, "interface", NULL),
		.collective_timeout_ns = options_int(o, "silence", SILENCE_S) * CLOCK_S_NS,
		.idle_test_ns = options_int(o, "idle-test", IDLE_TEST_S) * CLOCK_S_NS,
	};
	if (!*a->role)
		return usage("--role is missing: rank, check or connect is needed");
	if (strcmp(a->role, "check") == 0)
		return 0;
	if (a->warm.rank < 0 || a->warm.world < 0 || a->warm.threads < 0)
		return usage("--rank, --ranks and --threads are needed");
	if (a->warm.rank >= a->warm.world)
		return usage("--rank: %d is not allowed, from 0 to %d (--ranks %d)", a->warm.rank,
			a->warm.world - 1, a->warm.world);
	return 0;
}

/* Not by exit: without peers, threads or memory a library's destructor may wait for ever. */
static void end(int code) __attribute__((noreturn));

static void end(int code)
{
	fflush(stdout);
	_exit(code);
}

/* Flushes standard output: 0, or the exit status after a message. */
static int after_output(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	fprintf(stderr, "%s: standard output: %s\n", program_invocation_short_name,
		errno ? strerror(errno) : "not all of it was written");
	return ENGINE_EXIT_OUTPUT;
}

/* 0, or the exit status. --version and --help end the process. */
static int parse(int argc, char **argv, struct arguments *a)
{
	struct options o = {.tables = {rows}, .help = "gpt2-engine(8)"};
	char error[512];
	int code = 0;

	if (options_read(&o, argc, argv, 1, false, error, sizeof(error)) < 0) {
		code = usage("%s", error);
	} else if (o.n_words > 0) {
		code = usage("%s: an option is needed", o.words[0]);
	} else if (options_has(&o, "version")) {
		print_version();
		end(after_output());
	} else if (options_has(&o, "help")) {
		print_usage(stdout);
		end(after_output());
	} else {
		code = take_options(&o, a);
	}
	options_finish(&o);
	return code;
}

int main(int argc, char **argv)
{
	struct arguments a;
	struct link *link;
	struct stat st;
	bool checks;
	int code = parse(argc, argv, &a), rc;

	if (code)
		end(code);
	memory_use_for_json();
	/*
	 * Signals reach every process of a group, a control group or a terminal. gpt2d handles
	 * them: it first ends the run, and then its engines through their links.
	 */
	signals_ignore();
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fstat(LINK_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		fprintf(stderr,
			"%s: descriptor 3 is not a socket to gpt2d; only gpt2d starts this "
			"program\n",
			program_invocation_short_name);
		end(ENGINE_EXIT_USAGE);
	}
	dup2(STDERR_FILENO, STDOUT_FILENO); /* some libraries print to standard output */
	checks = strcmp(a.role, "check") == 0;
	rc = link_create(LINK_FD, checks ? LINK_RECEIVER_READS : LINK_THREAD_READS, &link);
	if (rc) {
		fprintf(stderr, "%s: the connection to gpt2d (descriptor 3) or its thread: %s\n",
			program_invocation_short_name, starved_text(rc));
		end(rc == -EAGAIN ? ENGINE_EXIT_STARVED : ENGINE_EXIT_POISONED);
	}
	if (checks)
		code = rank_check(link, a.warm.threads);
	else if (strcmp(a.role, "connect") == 0)
		code = rank_connect(link, &a.warm);
	else
		code = rank_run(link, &a.warm);
	link_destroy(link);
	if (code)
		end(code);
	return 0;
}

/*
 * gpt2-engine-cpu, gpt2-engine-cuda: a training engine under gpt2d, one process per rank. The
 * backend is the library that is linked. Not started by hand: descriptor 3 is the line to gpt2d
 * (proto/protocol.h).
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
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
#include "proto/protocol.h"
#include "proto/spec/spec.h"
#include "proto/host/starved.h"
#include "proto/version.h"

enum { LINK_FD = 3 };

/* A peer that says nothing for so long is lost; gpt2-engine(8) says so. */
#define COLLECTIVE_TIMEOUT_NS (60 * CLOCK_S_NS)

struct arguments {
	const char *role;
	bool version, help;
	bool check; /* else rank: what role says */
	struct warm_options warm;
};

enum argument_kind { ARGUMENT_FLAG, ARGUMENT_TEXT, ARGUMENT_NUMBER };

#define FIELD(name) offsetof(struct arguments, name)
/* What getopt knows and what --help prints. */
static const struct argument {
	const char *name, *arg; /* arg NULL: takes none */
	const char *help;
	enum argument_kind kind;
	size_t field;  /* bool, const char * or int */
	int min, max; /* of a number */
} rows[] = {
	{"role", "ROLE", "rank: train as one of the ranks; check: check specs", ARGUMENT_TEXT,
		FIELD(role), 0, 0},
	{"rank", "R", "which rank it is, from 0", ARGUMENT_NUMBER, FIELD(warm.rank), 0,
		SPEC_WORLD_MAX - 1},
	{"ranks", "N", "how many there are", ARGUMENT_NUMBER, FIELD(warm.world), 1,
		SPEC_WORLD_MAX},
	{"threads", "T", "threads that compute", ARGUMENT_NUMBER, FIELD(warm.threads), 1,
		PROTOCOL_THREADS_MAX},
	{"tuning-dir", "DIR", "keep the algorithms of matrix products there", ARGUMENT_TEXT,
		FIELD(warm.tuning_dir), 0, 0},
	{"no-graphs", NULL, "launch each operation, capture no step as a CUDA graph", ARGUMENT_FLAG,
		FIELD(warm.no_graphs), 0, 0},
	{"version", NULL, "print what this build is", ARGUMENT_FLAG, FIELD(version), 0, 0},
	{"help", NULL, "print this", ARGUMENT_FLAG, FIELD(help), 0, 0},
};
#undef FIELD
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void print_usage(FILE *out)
{
	const char *name = program_invocation_short_name;

	fprintf(out,
		"usage: %s --role rank --rank R --ranks N --threads T\n"
		"       %*s [--tuning-dir DIR] [--no-graphs]\n"
		"       %s --role check [--threads T]\n"
		"       %s --version\n\n"
		"gpt2d starts it, with a socket to itself as descriptor 3: gpt2-engine(8).\n\n",
		name, (int)strlen(name), "", name, name);
	for (int i = 0; i < ROWS; i++)
		fprintf(out, "  --%-10s %-4s  %s\n", rows[i].name, rows[i].arg ? rows[i].arg : "",
			rows[i].help);
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

static int read_number(const struct argument *row, const char *text, int *out)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < row->min || n > row->max)
		return usage("--%s: \"%s\", a number from %d to %d is expected", row->name, text,
			row->min, row->max);
	*out = (int)n;
	return 0;
}

static int take(const struct argument *row, const char *text, struct arguments *a)
{
	void *field = (char *)a + row->field;

	switch (row->kind) {
	case ARGUMENT_FLAG:
		*(bool *)field = true;
		return 0;
	case ARGUMENT_TEXT:
		*(const char **)field = text;
		return 0;
	case ARGUMENT_NUMBER:
		return read_number(row, text, field);
	}
	return 0;
}

static void print_version(void)
{
	struct ucx_library ucx;

	printf("gpt2-engine %s (%s)\n", VERSION_RELEASE, version_build);
	if (ucx_library_open(&ucx) == 0)
		printf("UCX %s\n", ucx.get_version_string());
}

/* What was left out is 0 or NULL, numbers are -1: 0, or what the program ends with. */
static int parse(int argc, char **argv, struct arguments *a)
{
	struct option options[ROWS + 1] = {{0}};
	int c, rc = 0;

	for (int i = 0; i < ROWS; i++)
		options[i] = (struct option){rows[i].name,
			rows[i].arg ? required_argument : no_argument, NULL, i};
	*a = (struct arguments){.warm = {.rank = -1, .world = -1, .threads = -1}};
	opterr = 0;
	while (rc == 0 && (c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c == ':')
			rc = usage("%s: a value is needed", argv[optind - 1]);
		else if (c == '?' && optopt >= ROWS)
			rc = usage("-%c: not known", optopt);
		else if (c == '?')
			rc = usage("%s: not known", argv[optind - 1]);
		else
			rc = take(&rows[c], optarg, a);
	}
	if (rc == 0 && optind < argc)
		rc = usage("%s: not known", argv[optind]);
	return rc;
}

/* 0, or what the program ends with. */
static int check_arguments(struct arguments *a)
{
	a->check = a->role != NULL && strcmp(a->role, "check") == 0;
	if (a->check) {
		if (a->warm.threads < 0)
			a->warm.threads = 1;
		return 0;
	}
	if (a->role == NULL || strcmp(a->role, "rank") != 0)
		return usage(
			"--role: \"%s\", rank or check is expected", a->role ? a->role : "");
	if (a->warm.rank < 0 || a->warm.world < 0 || a->warm.threads < 0)
		return usage("--rank, --ranks and --threads are needed");
	if (a->warm.rank >= a->warm.world)
		return usage(
			"--rank: %d of %d, it is below --ranks", a->warm.rank, a->warm.world);
	return 0;
}

/* Not by exit: without peers, threads or memory a library's end may wait for ever. */
static void end(int code) __attribute__((noreturn));

static void end(int code)
{
	fflush(stdout);
	_exit(code);
}

/* What was printed is out: 0, or what the program ends with, which is told. */
static int after_output(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	fprintf(stderr, "%s: standard output: %s\n", program_invocation_short_name,
		errno ? strerror(errno) : "not all of it was written");
	return ENGINE_EXIT_OUTPUT;
}

int main(int argc, char **argv)
{
	struct arguments a;
	struct link *link;
	struct stat st;
	int code = parse(argc, argv, &a), rc;

	if (code == 0 && (a.version || a.help)) {
		if (a.version)
			print_version();
		else
			print_usage(stdout);
		end(after_output());
	}
	if (code == 0)
		code = check_arguments(&a);
	if (code)
		end(code);
	a.warm.collective_timeout_ns = COLLECTIVE_TIMEOUT_NS;
	signal(SIGPIPE, SIG_IGN);
	/*
	 * what reaches every process of a group, a control group or a terminal is gpt2d's to
	 * handle: it lets a run end first, and ends its engines by their link
	 */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fstat(LINK_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		fprintf(stderr,
			"%s: descriptor 3 is no socket to gpt2d, which starts this program\n",
			program_invocation_short_name);
		end(ENGINE_EXIT_USAGE);
	}
	dup2(STDERR_FILENO, STDOUT_FILENO); /* some libraries print where nobody asked them to */
	rc = link_create(LINK_FD, &link);
	if (rc) {
		fprintf(stderr,
			"%s: the line to gpt2d, descriptor 3 and its thread: %s\n",
			program_invocation_short_name, starved_text(rc));
		end(rc == -EAGAIN ? ENGINE_EXIT_STARVED : ENGINE_EXIT_POISONED);
	}
	code = a.check ? rank_check(link, a.warm.threads) : rank_run(link, &a.warm);
	link_destroy(link);
	if (code)
		end(code);
	return 0;
}

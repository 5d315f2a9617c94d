/* gpt2ctl: the client of gpt2d. Finds the verb and runs it. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "ctl/help.h"
#include "ctl/verb_table.h"
#include "proto/host/memory.h"
#include "proto/host/signals.h"

/* Also after a usage error, which is printed in the requested form. */
static void set_up(struct ctl *ctl, const struct verb *verb, const struct options *args)
{
	struct output *o = &ctl->output;

	o->out = term_detect(stdout);
	o->err = term_detect(stderr);
	o->json = options_has(args, "json");
	if (options_has(args, "quiet") && !o->json && !options_has(args, "print-id"))
		o->out = term_nowhere();
	ctl->link = (struct client_options){.socket = options_string(args, "socket", NULL),
		.verb = verb ? verb->name : NULL,
		.notices = o->err.file};
}

/*
 * Opens missing standard streams: otherwise the socket would get the number, and printed text would
 * go to gpt2d. Writes to it fail, so that the loss is noticed.
 */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0)
			return;
}

static int run(
	struct ctl *ctl, const struct verb *verb, const struct options *args, struct ctl_error *e)
{
	if (options_has(args, "help")) {
		help_print(ctl, verb, args->n_words > 0 ? args->words[0] : NULL);
		return CTL_OK;
	}
	if (options_has(args, "version"))
		return verb_version.run(ctl, args, e);
	if (verb)
		return verb->run(ctl, args, e);
	if (!ctl->output.json)
		help_print_to(stderr, NULL);
	return ctl_error_set(e, CTL_USAGE, "missing verb; see: gpt2ctl help");
}

int main(int argc, char **argv)
{
	struct options args;
	const struct verb *verb;
	struct ctl ctl = {0};
	struct ctl_error e = {0};
	int exit;

	signals_unblock();
	memory_use_for_json();
	fill_standard_streams();
	/* characters only: numbers are written and read the same in every locale */
	setlocale(LC_CTYPE, "");
	/* writes fail instead: to a closed pipe, and beyond a limit on file sizes */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	exit = verb_table_parse(argc > 0 ? argc - 1 : 0, argv + 1, &verb, &args, &e);
	set_up(&ctl, verb, &args);
	if (!exit)
		exit = run(&ctl, verb, &args, &e);
	if (exit && e.exit)
		verb_print_error(&ctl, &e);
	options_finish(&args);
	return output_finish(&ctl.output, exit);
}

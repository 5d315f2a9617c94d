/* gpt2ctl: the client of gpt2d. Finds the verb and runs it; exit codes are in proto/protocol.h. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/verbs/help.h"
#include "ctl/print/output.h"
#include "ctl/verbs/verb.h"
#include "proto/host/signals.h"

/* Also where parsing failed: an error is then in the form that was asked for. */
static void settle(struct ctl *ctl, const struct arguments *args)
{
	ctl->verb = args->verb ? args->verb->name : NULL;
	ctl->out = term_detect(stdout);
	ctl->err = term_detect(stderr);
	ctl->json = arguments_has(args, "json");
	ctl->output = ctl->json ? &output_json : &output_text;
	if (arguments_has(args, "quiet") && !ctl->json && !arguments_has(args, "print-id"))
		ctl->out = term_nowhere();
	ctl->socket = arguments_string(args, "socket", NULL);
}

/*
 * A standard stream that came closed keeps its number: else the socket gets it, and what is printed
 * goes to gpt2d. It takes no writing, so that the loss is noticed.
 */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0)
			return;
}

int main(int argc, char **argv)
{
	struct arguments args;
	struct ctl ctl = {0};
	struct ctl_error e = {0};
	int exit;

	signals_unblock();
	fill_standard_streams();
	/* only characters: numbers are written and read the same in every locale */
	setlocale(LC_CTYPE, "");
	/* a closed pipe is an error of a write: output.c sees to stdout, client.c to the socket */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write */
	exit = arguments_parse(&args, argc > 0 ? argc - 1 : 0, argv + 1, &e);
	settle(&ctl, &args);
	if (exit) {
		exit = ctl_fail(&ctl, &e);
	} else if (arguments_has(&args, "help")) {
		help_print(&ctl, args.verb);
	} else if (arguments_has(&args, "version")) {
		exit = verb_version.run(&ctl, &args);
	} else if (!args.verb) {
		if (!ctl.json)
			help_print_to(stderr, NULL);
		ctl_error_set(&e, CTL_USAGE, "no verb is given; see: gpt2ctl help");
		exit = ctl_fail(&ctl, &e);
	} else {
		exit = args.verb->run(&ctl, &args);
	}
	arguments_finish(&args);
	return output_finish(&ctl, exit);
}

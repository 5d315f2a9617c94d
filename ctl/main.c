/* gpt2ctl: the client of gpt2d. Finds the verb and runs it; exit codes are in proto/protocol.h. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>

#include "ctl/arguments.h"
#include "ctl/help.h"
#include "ctl/output.h"
#include "ctl/verb.h"

/* Also where parsing failed: an error is then in the form that was asked for. */
static void settle(struct ctl *ctl, const struct arguments *args)
{
	ctl->out = term_detect(stdout);
	ctl->err = term_detect(stderr);
	ctl->json = arguments_has(args, "json");
	ctl->output = ctl->json ? &output_json : &output_text;
	ctl->socket = arguments_string(args, "socket", NULL);
}

int main(int argc, char **argv)
{
	struct arguments args;
	struct ctl ctl = {0};
	struct ctl_error e = {0};
	int exit;

	/* only characters: numbers are written and read the same in every locale */
	setlocale(LC_CTYPE, "");
	/* a closed pipe is an error of a write, and ends with exit code 1 */
	signal(SIGPIPE, SIG_IGN);
	exit = arguments_parse(&args, argc > 0 ? argc - 1 : 0, argv + 1, &e);
	settle(&ctl, &args);
	if (exit) {
		exit = ctl_fail(&ctl, &e);
	} else if (arguments_has(&args, "help")) {
		help_print(&ctl, args.verb);
	} else if (arguments_has(&args, "version")) {
		exit = verb_version.run(&ctl, &args);
	} else if (!args.verb) {
		help_print_to(stderr, NULL);
		exit = CTL_USAGE;
	} else {
		exit = args.verb->run(&ctl, &args);
	}
	arguments_finish(&args);
	return output_finish(&ctl, exit);
}

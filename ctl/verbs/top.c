/* gpt2ctl top: the daemon at a glance, again and again. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/link/client.h"
#include "ctl/link/interrupt.h"
#include "ctl/print/output.h"
#include "ctl/print/screen.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "ctl/print/view.h"
#include "proto/host/clock.h"

enum { FIRST_NS = 200000000, SCREEN_REPLY_S = 5 };

static const struct option_row options[] = {
	{"interval", 'i', OPTION_REAL, "SECONDS", 0.1, 3600.0, "between two looks (default 1)"},
	{"count", 'n', OPTION_INT, "N", 1, 1e9,
		"end after N looks, of which the last stays on the terminal; default: there and "
		"with --json no end, else 1"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

struct top {
	struct ctl *ctl;
	struct client *client; /* NULL: gpt2d is away */
	struct view view;
	struct screen *screen; /* NULL: no terminal, or JSON */
	int64_t interval_ns;
	int64_t left; /* looks; -1: without end */
};

/* ---- showing ---- */

/* How many lines it took. */
static int print_away(const struct term *t, const char *away)
{
	int lines = 0;

	for (const char *at = away; *at; lines++) {
		const int n = (int)strcspn(at, "\n");

		fprintf(t->file, "%s%.*s%s\n", term_colour(t, TERM_RED), n, at,
			term_colour(t, TERM_PLAIN));
		at += n;
		at += *at == '\n';
	}
	return lines;
}

/* The picture, and above it why it is old, if it is. */
static int draw(struct top *top, const char *away)
{
	struct term t = top->ctl->out;
	char *text = NULL;
	size_t n;
	int rows, rc;

	screen_resize(top->screen);
	t.file = open_memstream(&text, &n);
	if (!t.file)
		return -ENOMEM;
	rows = top->screen->rows - 1;
	t.width = top->screen->columns;
	t.fixed = true;
	if (away)
		rows -= print_away(&t, away);
	if (top->view.status)
		text_top(&t, &top->view, rows);
	fclose(t.file);
	rc = screen_draw(top->screen, text, "q: quit");
	free(text);
	return rc;
}

static int show(struct top *top)
{
	json_t *object;

	if (top->screen)
		return draw(top, NULL);
	object = view_json(&top->view);
	top->ctl->output->top(top->ctl, object, &top->view);
	json_decref(object);
	return top->ctl->out_failed ? -EPIPE : 0;
}

/* ---- waiting ---- */

enum { CTRL_Z = 26 };

static bool is_quit(void *of)
{
	struct top *top = of;
	const int key = screen_key(top->screen);

	if (key == CTRL_Z) {
		screen_suspend(top->screen);
		draw(top, NULL);
	}
	return key == 'q' || key == 'Q' || key == -EIO;
}

/* Until then, events taken meanwhile: true when the user has had enough. */
static bool wait_until(struct top *top, int64_t until_ns, struct ctl_error *e, bool *lost)
{
	*lost = false;
	while (!interrupt_seen()) {
		struct pollfd events = {.fd = -1};
		const int64_t left_ns = until_ns - clock_mono_ns();

		if (left_ns <= 0)
			return false;
		if (top->client)
			events = (struct pollfd){.fd = client_fd(top->client), .events = POLLIN};
		if (interrupt_poll(&events, 1, left_ns) < 0 && errno == EINTR && top->screen &&
			!interrupt_seen())
			return false; /* another size */
		if (events.revents && view_take_events(&top->view, top->client, e) != 0) {
			*lost = true;
			return false;
		}
	}
	return true;
}

/* ---- looking ---- */

/* On a terminal a daemon that is away is looked for again. */
static int look(struct top *top, struct ctl_error *e)
{
	int exit = 0;

	if (!top->client) {
		exit = client_open(top->ctl, &top->client, e);
		view_forget_run(&top->view);
	}
	return exit ? exit : view_look(&top->view, top->client, e);
}

/* It may be otherwise at the next look: gpt2d is away, hangs, stops, is full or has no memory. */
static bool may_come_back(const struct top *top, int exit)
{
	return top->screen && top->view.status &&
		(exit == CTL_NO_DAEMON || exit == CTL_TRANSPORT || exit == CTL_TIMEOUT ||
			exit == CTL_NOT_NOW || exit == CTL_GPT2D_FAILED);
}

static int away(struct top *top, struct ctl_error *e)
{
	const int rc = draw(top, e->message);

	client_close(top->client);
	top->client = NULL;
	ctl_error_clear(e);
	return rc;
}

static int look_again(struct top *top, struct ctl_error *e)
{
	bool lost, first = true;
	int exit, rc;

	while (top->left != 0) {
		const int64_t begun_ns = clock_mono_ns();

		exit = look(top, e);
		if (exit && interrupt_seen())
			return CTL_OK;
		if (exit && (!may_come_back(top, exit) || top->left == 1))
			return exit;
		if (exit)
			rc = away(top, e);
		else if (first && !top->screen)
			rc = 0; /* the load needs two looks */
		else
			rc = show(top);
		if (rc < 0)
			return CTL_OK; /* nobody sees it any more; output_finish says why */
		if (!(first && !top->screen) && top->left > 0 && --top->left == 0)
			break;
		if (wait_until(top,
			    begun_ns +
				    (first && top->interval_ns > FIRST_NS ? FIRST_NS
									  : top->interval_ns),
			    e, &lost))
			break;
		if (lost && !may_come_back(top, e->exit))
			return e->exit;
		if (lost)
			away(top, e);
		first = false;
	}
	return CTL_OK;
}

static int run(struct ctl *ctl, const struct arguments *args)
{
	const bool terminal = ctl->out.tty && !ctl->json;
	struct top top = {
		.ctl = ctl,
		.interval_ns = (int64_t)(arguments_real(args, "interval", 1.0) * 1e9),
		.left = arguments_int(args, "count", terminal || ctl->json ? -1 : 1),
	};
	struct ctl_error e = {0};
	struct screen screen;
	int exit;

	view_init(&top.view);
	top.view.reply_s = terminal ? SCREEN_REPLY_S : CLIENT_REPLY_S;
	exit = client_open(ctl, &top.client, &e);
	if (exit)
		return ctl_fail(ctl, &e);
	interrupt_begin();
	if (terminal) {
		screen_begin(&screen, ctl->out.utf8);
		top.screen = &screen;
		ctl->drawn = true;
		interrupt_on_key(screen.keys ? STDIN_FILENO : -1, is_quit, &top);
	}
	exit = look_again(&top, &e);
	if (terminal) {
		interrupt_on_key(-1, NULL, NULL);
		screen_end(&screen);
	}
	top.screen = NULL;
	ctl->drawn = false;
	if (terminal && !exit && top.left == 0)
		show(&top); /* the screen has gone with what was drawn there */
	view_finish(&top.view);
	client_close(top.client);
	return exit ? ctl_fail(ctl, &e) : CTL_OK;
}

const struct verb verb_top = {
	.name = "top",
	.args = "",
	.summary = "a live view of daemon, engine, run and queue",
	.text = "On a terminal it is drawn again each interval, until q is pressed; Ctrl-Z "
		"stops it as any other program; where gpt2d goes away it is looked for again. "
		"Shown are the load and memory of each rank (100% is a processor), the run with "
		"its progress, speed, time left and the losses of its segment, and the queue. The "
		"losses are of the steps that gpt2d told, at most ten in a second, a bar the mean "
		"of one or more, from the lowest to the highest; behind them stand the first one "
		"that is known, with its step, and that of the step above. "
		"Elsewhere it is printed once, and with --json an object for each interval; there "
		"it ends with exit code 124 where gpt2d has not answered for 30 s, and standard "
		"error says before that nothing comes, and why.",
	.options = options,
	.run = run,
};

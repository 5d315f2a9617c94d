/* gpt2ctl top: a live view of gpt2d. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/link/interrupt.h"
#include "ctl/print/members.h"
#include "ctl/print/ranks.h"
#include "ctl/print/screen.h"
#include "ctl/print/text.h"
#include "ctl/verbs/verb.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"
#include "proto/rpc.h"

enum {
	FIRST_NS = 200000000,
	SCREEN_REPLY_S = 5,
	LOSSES_MAX = 1024,
	LOSS_BARS = 120,
	NODE_ROWS = 4
};

static const struct option_row options[] = {
	{"interval", 'i', OPTION_REAL, "SECONDS", 0.1, 3600.0,
		"time between two updates (default 1)"},
	{"count", 'n', OPTION_INT, "N", 1, 1e9,
		"end after N updates; the last one stays on the terminal (default: no end on a "
		"terminal and with --json, else 1)"},
	{NULL, 0, OPTION_FLAG, NULL, 0, 0, NULL},
};

/* The status of gpt2d, the load of its processes, and the losses of the segment that trains. */
struct view {
	int reply_s;    /* how long a reply may take */
	json_t *status; /* with cpu_load in daemon and ranks, since the previous status */
	int64_t at_ns;  /* of status, monotonic */
	/* the run that is followed, and the segment of the losses; 0 and -1: none */
	int64_t run, segment;
	double losses[LOSSES_MAX];
	int64_t first_step; /* that of losses[0]: gpt2d does not report each step */
	size_t n_losses;
	int64_t every, seen; /* every how many losses one is kept; number of losses seen */
};

/* On a new connection no run is followed. */
static void forget_run(struct view *v)
{
	v->run = 0;
	v->segment = -1;
	v->n_losses = 0;
}

/* ---- load ---- */

static void set_load(json_t *now, const json_t *before, double seconds)
{
	const double used = format_real(now, "cpu_s") - format_real(before, "cpu_s");
	const bool same = format_int(now, "pid", 0) == format_int(before, "pid", -1);
	const bool known = same && isfinite(used) && used >= 0.0 && seconds > 0.0;

	json_object_set_new(now, "cpu_load", known ? json_real(used / seconds) : json_null());
}

static void set_loads(json_t *now, const json_t *before, double seconds)
{
	const json_t *old = json_object_get(json_object_get(before, "engine"), "ranks");
	json_t *ranks = json_object_get(json_object_get(now, "engine"), "ranks"), *rank;
	size_t i;

	set_load(json_object_get(now, "daemon"), json_object_get(before, "daemon"), seconds);
	json_array_foreach(ranks, i, rank)
		set_load(rank, json_array_get(old, i), seconds);
}

/* ---- the run in progress ---- */

static void add_loss(struct view *v, int64_t segment, int64_t step, double loss)
{
	if (segment != v->segment) {
		v->segment = segment;
		v->first_step = step;
		v->n_losses = 0;
		v->every = 1;
		v->seen = 0;
	}
	if (v->seen++ % v->every != 0)
		return;
	if (v->n_losses == LOSSES_MAX) {
		for (size_t i = 0; i < LOSSES_MAX / 2; i++)
			v->losses[i] = v->losses[i * 2];
		v->n_losses = LOSSES_MAX / 2;
		v->every *= 2;
	}
	v->losses[v->n_losses++] = loss;
}

static int follow(struct view *v, struct client *c, int64_t id, struct ctl_error *e)
{
	json_t *reply;
	/* from the first kept event: all losses so far */
	const int exit = client_request(c, METHOD_FOLLOW,
		json_pack("{s:I, s:i}", "id", (json_int_t)id, "after", 0), v->reply_s, &reply, e);

	if (exit == 0) {
		json_decref(reply);
		v->run = id;
		return 0;
	}
	if (exit == CTL_TRANSPORT || exit == CTL_TIMEOUT)
		return exit;
	ctl_error_clear(e); /* show no losses, then */
	return 0;
}

/* Handles received events: 0, or an exit status with e if the connection is lost. */
static int take_events(struct view *v, struct client *c, struct ctl_error *e)
{
	char event[64];
	json_t *params;

	for (;;) {
		switch (client_next(c, 0, event, &params, e)) {
		case CLIENT_EVENT:
			if (strcmp(event, EVENT_STEP) == 0 && format_int(params, "id", 0) == v->run)
				add_loss(v, format_int(params, "segment", 0),
					format_int(params, "step", 0), format_real(params, "loss"));
			json_decref(params);
			break;
		case CLIENT_LOST:
			return e->exit;
		case CLIENT_QUIET:
		case CLIENT_INTERRUPTED:
			ctl_error_clear(e);
			return 0;
		}
	}
}

/* Requests the status, and follows the run in progress: 0, or an exit status with e. */
static int take_status(struct view *v, struct client *c, struct ctl_error *e)
{
	json_t *status = NULL;
	int64_t id, now_ns;
	int exit = client_request(c, METHOD_STATUS, json_object(), v->reply_s, &status, e);

	if (exit)
		return exit;
	now_ns = clock_mono_ns();
	set_loads(status, v->status, (double)(now_ns - v->at_ns) / 1e9);
	json_decref(v->status);
	v->status = status;
	v->at_ns = now_ns;
	id = format_int(json_object_get(json_object_get(status, "running"), "run"), "id", 0);
	if (id != v->run) {
		forget_run(v);
		if (id > 0)
			exit = follow(v, c, id, e);
	}
	return exit ? exit : take_events(v, c, e);
}

static json_t *view_json(const struct view *v)
{
	json_t *object = json_deep_copy(v->status), *losses = json_array();

	for (size_t i = 0; i < v->n_losses; i++)
		json_array_append_new(losses, rpc_real(v->losses[i]));
	json_object_set_new(object, "losses", losses);
	return object;
}

/* ---- losses as a row of bars ---- */

/* Mean of the finite ones of losses [from, to). */
static double mean_of(const double *losses, size_t from, size_t to)
{
	double sum = 0.0;
	int n = 0;

	for (size_t i = from; i < to; i++) {
		if (!isfinite(losses[i]))
			continue;
		sum += losses[i];
		n++;
	}
	return n > 0 ? sum / n : (double)NAN;
}

static void put_bar(const struct term *t, double height)
{
	static const char plain[] = "_.-=+*%#";
	const bool known = height >= 0.0 && height <= 1.0; /* false for NaN in both directions */
	const int eighth = known ? (int)(height * 7.0 + 0.5) : 0;

	if (!known)
		fputc('?', t->file);
	else if (t->utf8) /* U+2581 to U+2588 */
		fprintf(t->file, "\xe2\x96%c", (char)(0x81 + eighth));
	else
		fputc(plain[eighth], t->file);
}

/* Ends with the loss of progress, like the line above it. */
static void print_losses(const struct view *v, const struct term *t, const json_t *progress)
{
	const size_t room = t->width > 58 ? (size_t)t->width - 48 : 10;
	const size_t limit = room < LOSS_BARS ? room : LOSS_BARS;
	const size_t cells = v->n_losses < limit ? v->n_losses : limit;
	double value[LOSS_BARS], low = (double)INFINITY, high = -(double)INFINITY;

	if (cells < 2 || format_int(progress, "segment", -1) != v->segment)
		return;
	for (size_t i = 0; i < cells; i++) {
		value[i] =
			mean_of(v->losses, i * v->n_losses / cells, (i + 1) * v->n_losses / cells);
		low = fmin(low, value[i]);
		high = fmax(high, value[i]);
	}
	fprintf(t->file, "loss    %s", term_colour(t, TERM_CYAN));
	for (size_t i = 0; i < cells && t->bars; i++)
		put_bar(t, high > low ? (value[i] - low) / (high - low) : value[i] - low);
	fprintf(t->file, "%s%s%.4f at step %lld to %.4f\n", term_colour(t, TERM_PLAIN),
		t->bars ? " " : "", v->losses[0], (long long)v->first_step,
		format_real(progress, "loss"));
}

/* ---- parts ---- */

static void print_head(const struct view *v, const struct term *t)
{
	const json_t *daemon = json_object_get(v->status, "daemon");
	const json_t *host = json_object_get(v->status, "host");
	const json_t *store = json_object_get(v->status, "store");
	const bool limited = format_int(host, "memory_limit_bytes", INT64_MAX) <
		format_int(host, "memory_bytes", 0);
	char load[32];

	fputs(term_colour(t, TERM_BOLD), t->file);
	members_print(t->file, daemon, "gpt2d {version}");
	fputs(term_colour(t, TERM_PLAIN), t->file);
	members_print(t->file, daemon, " {state}, up {uptime_s:duration|-}, ");
	fprintf(t->file, "cpu %s", ranks_load(daemon, load, sizeof(load)));
	members_print(t->file, daemon, ", {rss_bytes:size|-}, clients {clients}\n");
	members_print(t->file, host, "host    {processors|0} processors, load {load_1m:.2|0.00}");
	members_print(t->file, host,
		limited ? ", {memory_available_bytes:size|-} of {memory_bytes:size|-} free, limit "
			  "{memory_limit_bytes:size|-}\n"
			: ", {memory_available_bytes:size|-} of {memory_bytes:size|-} free\n");
	if (!json_is_object(store))
		return;
	fputs(term_colour(t, TERM_RED), t->file);
	members_print(t->file, store, "store   {error}: {advice|}");
	fprintf(t->file, "%s\n", term_colour(t, TERM_PLAIN));
}

static void print_engine(const struct view *v, const struct term *t, size_t rows)
{
	const json_t *engine = json_object_get(v->status, "engine");

	members_print(t->file, engine,
		"engine  {state}, restarts {restarts}[ (idle_release) since {idle.since:time}][: "
		"{reason}]\n");
	ranks_print(t, engine, rows);
	ranks_print_others(t, json_object_get(engine, "ranks"), 1);
}

/* The ranks get up to half of the rows that other parts leave free, the queue the rest. */
static void print_view(const struct term *t, const struct view *v, int rows)
{
	const json_t *world = json_object_get(v->status, "world");
	const int node_rows = json_is_object(world) ? NODE_ROWS : 0;
	const int fixed = 2 + 4 + 3 + 2 + node_rows + (node_rows > 0);
	const int left = rows > fixed + 2 ? rows - fixed : 2;
	const size_t n_ranks =
		json_array_size(json_object_get(json_object_get(v->status, "engine"), "ranks"));
	const size_t half = (size_t)left / 2, ranks = n_ranks < half ? n_ranks : half;
	const json_t *running = json_object_get(v->status, "running");

	print_head(v, t);
	ranks_print_nodes(t, world, node_rows);
	text_running(t, v->status);
	if (json_is_object(json_object_get(running, "run")))
		print_losses(v, t, json_object_get(running, "progress"));
	print_engine(v, t, ranks);
	text_queue(t, v->status, (size_t)left - ranks);
}

/* ---- the verb ---- */

struct top {
	struct ctl *ctl;
	struct client *client; /* NULL: not connected */
	struct view view;
	struct screen *screen; /* NULL: no terminal, or JSON */
	int64_t interval_ns;
	int64_t left; /* updates; -1: no end */
};

/* ---- showing ---- */

/* Number of lines of a message. */
static int print_message(const struct term *t, const char *message)
{
	int lines = 0;

	for (const char *at = message; *at; lines++) {
		const int n = (int)strcspn(at, "\n");

		fprintf(t->file, "%s%.*s%s\n", term_colour(t, TERM_RED), n, at,
			term_colour(t, TERM_PLAIN));
		at += n;
		at += *at == '\n';
	}
	return lines;
}

/* message: why the status below is old; NULL: the status is new. */
static int draw(struct top *top, const char *message)
{
	struct term t = top->ctl->output.out;
	char *text = NULL;
	size_t n;
	int rows, rc;

	screen_resize(top->screen);
	t.file = memory_stream(&text, &n);
	rows = top->screen->rows - 1;
	t.width = top->screen->columns;
	t.fixed = true;
	if (message)
		rows -= print_message(&t, message);
	if (top->view.status)
		print_view(&t, &top->view, rows);
	memory_stream_end(t.file);
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
	if (!top->ctl->output.json)
		print_view(&top->ctl->output.out, &top->view, INT_MAX);
	output_print(&top->ctl->output, "top", object, NULL);
	json_decref(object);
	return top->ctl->output.failed ? -EPIPE : 0;
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

/* Waits until then, and handles events: whether the user ended it. */
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
			return false; /* the terminal was resized */
		if (events.revents && take_events(&top->view, top->client, e) != 0) {
			*lost = true;
			return false;
		}
	}
	return true;
}

/* ---- updates ---- */

/* On a terminal top reconnects at each update. */
static int update(struct top *top, struct ctl_error *e)
{
	int exit = 0;

	if (!top->client) {
		exit = client_open(&top->ctl->link, &top->client, e);
		forget_run(&top->view);
	}
	return exit ? exit : take_status(&top->view, top->client, e);
}

/* gpt2d is not running, silent, stopping or full: the next update may succeed. */
static bool is_temporary(const struct top *top, int exit)
{
	return top->screen && top->view.status &&
		(exit == CTL_NO_DAEMON || exit == CTL_TRANSPORT || exit == CTL_TIMEOUT ||
			exit == CTL_NOT_NOW || exit == CTL_GPT2D_FAILED);
}

static int draw_error(struct top *top, struct ctl_error *e)
{
	const int rc = draw(top, e->message);

	client_close(top->client);
	top->client = NULL;
	ctl_error_clear(e);
	return rc;
}

static int update_all(struct top *top, struct ctl_error *e)
{
	bool lost, first = true;
	int exit, rc;

	while (top->left != 0) {
		const int64_t begun_ns = clock_mono_ns();

		exit = update(top, e);
		if (exit && interrupt_seen())
			return CTL_OK;
		if (exit && (!is_temporary(top, exit) || top->left == 1))
			return exit;
		if (exit)
			rc = draw_error(top, e);
		else if (first && !top->screen)
			rc = 0; /* the load needs two updates */
		else
			rc = show(top);
		if (rc < 0)
			return CTL_OK; /* output_finish reports why nothing can be printed */
		if (!(first && !top->screen) && top->left > 0 && --top->left == 0)
			break;
		if (wait_until(top,
			    begun_ns +
				    (first && top->interval_ns > FIRST_NS ? FIRST_NS
									  : top->interval_ns),
			    e, &lost))
			break;
		if (lost && !is_temporary(top, e->exit))
			return e->exit;
		if (lost)
			draw_error(top, e);
		first = false;
	}
	return CTL_OK;
}

static int run(struct ctl *ctl, const struct options *args, struct ctl_error *e)
{
	const bool terminal = ctl->output.out.tty && !ctl->output.json;
	struct top top = {
		.ctl = ctl,
		.interval_ns = (int64_t)(options_real(args, "interval", 1.0) * 1e9),
		.left = options_int(args, "count", terminal || ctl->output.json ? -1 : 1),
		.view = {.segment = -1,
			.every = 1,
			.reply_s = terminal ? SCREEN_REPLY_S : CLIENT_REPLY_S},
	};
	struct screen screen;
	int exit;

	exit = client_open(&ctl->link, &top.client, e);
	if (exit)
		return e->exit;
	interrupt_begin();
	if (terminal) {
		screen_begin(&screen, ctl->output.out.utf8);
		top.screen = &screen;
		ctl->link.notices = NULL; /* the screen is in use */
		interrupt_on_key(screen.keys ? STDIN_FILENO : -1, is_quit, &top);
	}
	exit = update_all(&top, e);
	if (terminal) {
		interrupt_on_key(-1, NULL, NULL);
		screen_end(&screen);
	}
	top.screen = NULL;
	if (terminal && !exit && top.left == 0)
		show(&top); /* the screen is gone, with its content */
	json_decref(top.view.status);
	client_close(top.client);
	return exit;
}

const struct verb verb_top = {
	.name = "top",
	.args = "",
	.summary = "a live view of gpt2d, its engine, the run in progress and the queue",
	.text = "On a terminal, top draws the view again at each interval until you press q. "
		"Ctrl-Z stops it like any other program. If gpt2d goes away, top reconnects. The "
		"view shows load and memory of each rank (100% is one processor), progress, speed, "
		"time left and losses of the run in progress, and the queue. gpt2d reports at most "
		"ten losses per second. A bar is the mean of one or more losses, from the lowest "
		"to the highest; after the bars come the first known loss with its step, and that "
		"of the step above. Elsewhere, top prints the view once, and with --json an object "
		"for each interval; there it ends with exit status 124 if gpt2d has not answered "
		"for 30 s.",
	.options = options,
	.run = run,
};

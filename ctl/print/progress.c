#include "ctl/print/progress.h"

#include <math.h>
#include <string.h>

#include "ctl/print/format.h"
#include "proto/host/clock.h"

enum { BAR_MIN = 8, BAR_MAX = 40, LINE_BYTES = 1024, LINE_COLUMNS = 80 };

void progress_init(struct progress *p, const struct term *term)
{
	*p = (struct progress){.term = term, .printed_ns = -1, .printed_segment = -1};
}

/* Number of steps; products of a daemon's numbers may exceed int64_t. */
static double total_done(const struct progress_step *s)
{
	return (double)(s->segment - 1) * (double)s->steps + (double)s->step;
}

static double total(const struct progress_step *s)
{
	return (double)s->segments * (double)s->steps;
}

/* The run and its position; in the brief form only the segment, if there are several. */
static void describe(const struct progress_step *s, bool brief, char *before, size_t before_bytes)
{
	int n = 0;

	*before = '\0';
	if (!brief)
		n = snprintf(before, before_bytes, "run %lld %s%s", (long long)s->id, s->name,
			s->segments > 1 ? "  " : "");
	if (s->segments > 1 && n >= 0 && (size_t)n < before_bytes)
		snprintf(before + n, before_bytes - (size_t)n, "segment %lld/%lld%s%s",
			(long long)s->segment, (long long)s->segments, brief ? "" : " ",
			brief ? "" : s->arm);
}

static void figures(const struct progress_step *s, bool with_step, char *out, size_t out_bytes)
{
	const bool goes_on = s->eta_s > 0.0 && isfinite(s->eta_s);
	char rate[FORMAT_BYTES], left[FORMAT_BYTES], step[64] = "", loss[32] = "";

	if (with_step || s->segments <= 1)
		snprintf(step, sizeof(step), "step %lld/%lld  ", (long long)s->step,
			(long long)s->steps);
	if (isfinite(s->loss))
		snprintf(loss, sizeof(loss), "loss %.4f  ", s->loss);
	snprintf(out, out_bytes, "%s%s%s%s%s%s", step, loss,
		isfinite(s->tokens_per_s) ? format_si(s->tokens_per_s, rate) : "",
		isfinite(s->tokens_per_s) ? " tok/s" : "", goes_on ? "  " : "",
		goes_on ? format_duration(s->eta_s, left) : "");
	if (goes_on && strlen(out) + 6 < out_bytes)
		strcat(out, " left");
}

/* Cells of the bar beside these texts. */
static size_t bar_cells(struct progress *p, bool brief, const char *before, const char *after)
{
	const size_t width = (size_t)term_width(p->term);
	size_t used = term_columns(before) + term_columns(after);

	if (used > p->widest[brief])
		p->widest[brief] = used;
	used = p->widest[brief] + strlen("  [] 100%  ") + 1;
	if (width <= used)
		return 0;
	return width - used < BAR_MAX ? width - used : BAR_MAX;
}

/* Too few cells for a bar: only the percentage. */
static void draw_line(struct progress *p, const char *before, const char *after, double fraction,
	size_t cells, int64_t now_ns)
{
	const struct term *t = p->term;
	const size_t width = (size_t)term_width(t);
	char bar[BAR_MAX * 4 + 1] = "", line[LINE_BYTES];

	if (cells >= BAR_MIN) {
		term_bar(t, fraction, cells, bar, sizeof(bar));
		fprintf(t->file, "\r\033[K%s%s[%s%s%s] %3d%%  %s", before, *before ? "  " : "",
			term_colour(t, TERM_CYAN), bar, term_colour(t, TERM_PLAIN),
			format_percent(fraction), after);
	} else {
		snprintf(line, sizeof(line), "%3d%%  %s  %s", format_percent(fraction), after,
			before);
		line[term_fit(line, strlen(line), width > 1 ? width - 1 : 1)] = '\0';
		fprintf(t->file, "\r\033[K%s", line);
	}
	fflush(t->file);
	p->drawn = true;
	p->drawn_ns = now_ns;
}

static void draw(struct progress *p, const struct progress_step *s, int64_t now_ns)
{
	const double fraction = total(s) > 0.0 ? total_done(s) / total(s) : 0.0;
	char before[256], after[256];
	size_t cells = 0;

	for (int brief = 0; brief < 2 && cells < BAR_MIN; brief++) {
		describe(s, brief, before, sizeof(before));
		figures(s, !brief, after, sizeof(after));
		cells = bar_cells(p, brief, before, after);
	}
	draw_line(p, before, after, fraction, cells, now_ns);
}

static void print_line(struct progress *p, const struct progress_step *s, int64_t now_ns)
{
	static const struct {
		bool brief, with_step;
	} forms[] = {{false, true}, {true, true}, {true, false}};
	char before[256], after[256];

	for (int i = 0; i < (s->segments > 1 ? 3 : 1); i++) {
		figures(s, forms[i].with_step, after, sizeof(after));
		describe(s, forms[i].brief, before, sizeof(before));
		if (term_columns(before) + strlen("  ") + term_columns(after) <= LINE_COLUMNS)
			break;
	}
	fprintf(p->term->file, "%s%s%s\n", before, *before ? "  " : "", after);
	fflush(p->term->file);
	p->printed_ns = now_ns;
}

void progress_show(struct progress *p, const struct progress_step *s, int64_t now_ns)
{
	const int64_t tenth =
		s->steps > 0 ? (int64_t)((double)s->step * 10.0 / (double)s->steps) : 0;
	bool quiet;

	if (p->printed_ns < 0)
		p->printed_ns = now_ns;
	if (p->term->tty) {
		if (!p->drawn || s->step == s->steps ||
			now_ns - p->drawn_ns >= CLOCK_S_NS / PROGRESS_DRAWS_PER_S)
			draw(p, s, now_ns);
		return;
	}
	/* segments of an experiment get a line each when they are done */
	quiet = s->segments > 1 || (s->segment == p->printed_segment && tenth == p->printed_tenth);
	if (quiet && now_ns - p->printed_ns < PROGRESS_QUIET_S * CLOCK_S_NS)
		return;
	p->printed_segment = s->segment;
	p->printed_tenth = tenth;
	print_line(p, s, now_ns);
}

static void work_items(const struct progress_work *w, double items, char out[FORMAT_BYTES])
{
	if (!w->unit) {
		format_size((int64_t)fmin(items, 1e18), out);
		return;
	}
	format_si(items, out);
	snprintf(out + strlen(out), FORMAT_BYTES - strlen(out), " %.8s", w->unit);
}

/* "1.23 G tok  8.10 M tok/s  12.3 s left" */
static void work_figures(const struct progress_work *w, char *out, size_t out_bytes)
{
	char items[FORMAT_BYTES], rate[FORMAT_BYTES], left[FORMAT_BYTES];
	size_t n;

	work_items(w, (double)w->items, items);
	n = (size_t)snprintf(out, out_bytes, "%s", items);
	if (w->seconds <= 0.0)
		return;
	work_items(w, (double)w->items / w->seconds, rate);
	n += (size_t)snprintf(out + n, out_bytes - n, "  %s/s", rate);
	if (w->fraction > 0.0 && w->fraction < 1.0)
		snprintf(out + n, out_bytes - n, "  %s left",
			format_duration(w->seconds * (1.0 - w->fraction) / w->fraction, left));
}

void progress_show_work(struct progress *p, const struct progress_work *w, int64_t now_ns)
{
	const bool tty = p->term->tty;
	const int64_t pause_ns =
		tty ? CLOCK_S_NS / PROGRESS_DRAWS_PER_S : PROGRESS_QUIET_S * CLOCK_S_NS;
	char after[256];

	if (p->printed_ns < 0)
		p->printed_ns = now_ns;
	if (now_ns - (tty ? p->drawn_ns : p->printed_ns) < pause_ns)
		return;
	work_figures(w, after, sizeof(after));
	if (!tty) {
		fprintf(p->term->file, "%s  %s\n", w->name, after);
		fflush(p->term->file);
		p->printed_ns = now_ns;
	} else if (w->fraction >= 0.0) {
		draw_line(p, w->name, after, w->fraction, bar_cells(p, false, w->name, after),
			now_ns);
	} else {
		fprintf(p->term->file, "\r\033[K%s  %s", w->name, after);
		fflush(p->term->file);
		p->drawn = true;
		p->drawn_ns = now_ns;
	}
}

void progress_clear(struct progress *p)
{
	if (!p->drawn)
		return;
	fputs("\r\033[K", p->term->file);
	fflush(p->term->file);
	p->drawn = false;
}

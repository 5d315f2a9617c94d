#include "ctl/print/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print/format.h"
#include "ctl/print/members.h"
#include "proto/host/clock.h"

enum { BAR_MIN = 8, BAR_MAX = 40, LINE_BYTES = 1024, LINE_COLUMNS = 80 };

void progress_init(struct progress *p, const struct term *term)
{
	*p = (struct progress){.term = term, .printed_ns = -1, .printed_segment = -1};
}

/* In double: products of a daemon's numbers may exceed int64_t. */
double progress_fraction(const json_t *step)
{
	const double steps = (double)format_int(step, "steps", 0);
	const double total = (double)format_int(step, "segments", 1) * steps;
	const double done = (double)(format_int(step, "segment", 1) - 1) * steps +
		(double)format_int(step, "step", 0);

	return total > 0.0 ? done / total : 0.0;
}

static bool has_segments(const json_t *step)
{
	return format_int(step, "segments", 1) > 1;
}

/* The run and its position; in the brief form only the segment, if there are several. */
static char *describe(const json_t *step, bool brief)
{
	if (!has_segments(step))
		return members_text(step, brief ? "" : "run {id} {name|}");
	return members_text(step,
		brief ? "segment {segment|1}/{segments}"
		      : "run {id} {name|}  segment {segment|1}/{segments} {arm|}");
}

static char *figures(const json_t *step, bool with_step)
{
	char format[160];

	snprintf(format, sizeof(format), "%s[loss {loss:.4}  ][{tokens_per_sec:si} tok/s]%s",
		with_step || !has_segments(step) ? "step {step|0}/{steps|0}  " : "",
		format_real(step, "eta_s") > 0.0 ? "  {eta_s:duration} left" : "");
	return members_text(step, format);
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

static void draw(struct progress *p, const json_t *step, int64_t now_ns)
{
	char *before = NULL, *after = NULL;
	size_t cells = 0;

	for (int brief = 0; brief < 2 && cells < BAR_MIN; brief++) {
		free(before);
		free(after);
		before = describe(step, brief);
		after = figures(step, !brief);
		cells = bar_cells(p, brief, before, after);
	}
	draw_line(p, before, after, progress_fraction(step), cells, now_ns);
	free(before);
	free(after);
}

static void print_line(struct progress *p, const json_t *step, int64_t now_ns)
{
	static const struct {
		bool brief, with_step;
	} forms[] = {{false, true}, {true, true}, {true, false}};
	char *before = NULL, *after = NULL;

	for (int i = 0; i < (has_segments(step) ? 3 : 1); i++) {
		free(before);
		free(after);
		before = describe(step, forms[i].brief);
		after = figures(step, forms[i].with_step);
		if (term_columns(before) + strlen("  ") + term_columns(after) <= LINE_COLUMNS)
			break;
	}
	fprintf(p->term->file, "%s%s%s\n", before, *before ? "  " : "", after);
	fflush(p->term->file);
	p->printed_ns = now_ns;
	free(before);
	free(after);
}

void progress_show(struct progress *p, const json_t *step, int64_t now_ns)
{
	const int64_t segment = format_int(step, "segment", 1);
	const int64_t done = format_int(step, "step", 0), steps = format_int(step, "steps", 0);
	const int64_t tenth = steps > 0 ? (int64_t)((double)done * 10.0 / (double)steps) : 0;
	bool quiet;

	if (p->printed_ns < 0)
		p->printed_ns = now_ns;
	if (p->term->tty) {
		if (!p->drawn || done == steps ||
			now_ns - p->drawn_ns >= CLOCK_S_NS / PROGRESS_DRAWS_PER_S)
			draw(p, step, now_ns);
		return;
	}
	/* segments of an experiment get a line each when they are done */
	quiet = has_segments(step) || (segment == p->printed_segment && tenth == p->printed_tenth);
	if (quiet && now_ns - p->printed_ns < PROGRESS_QUIET_S * CLOCK_S_NS)
		return;
	p->printed_segment = segment;
	p->printed_tenth = tenth;
	print_line(p, step, now_ns);
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

#include "daemon/runs/pace.h"

void pace_begin(struct pace *p, int64_t now_ns)
{
	*p = (struct pace){.begun_ns = now_ns, .segment = -1};
}

/*
 * The mean since the segment's first message, because a single step may be slow. Before that, the
 * mean of the previous segment.
 */
void pace_step(struct pace *p, int64_t segment, int64_t step, double step_ns, int64_t now_ns)
{
	if (segment == p->segment && step > p->step) {
		p->step_ns = (double)(now_ns - p->at_ns) / (double)(step - p->step);
		return;
	}
	p->segment = segment;
	p->step = step;
	p->at_ns = now_ns;
	if (p->step_ns == 0)
		p->step_ns = step_ns;
}

void pace_trained(struct pace *p, int64_t now_ns)
{
	p->trained++;
	p->trained_ns = now_ns;
}

double pace_left_s(const struct pace *p, int64_t step, int64_t steps, int64_t segments_left)
{
	double segment_ns = (double)steps * p->step_ns;

	if (p->trained > 0)
		segment_ns = (double)(p->trained_ns - p->begun_ns) / (double)p->trained;
	return ((double)(steps - step) * p->step_ns + (double)segments_left * segment_ns) / 1e9;
}

#include "daemon/config/ulimits.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>

#include "daemon/config/log.h"
#include "daemon/config/settings.h"

static const struct {
	int resource;
	const char *name;
} raised[] = {{RLIMIT_NOFILE, "descriptors"}, {RLIMIT_CPU, "processor time"},
	{RLIMIT_FSIZE, "the size of files"}};
enum { RAISED = sizeof(raised) / sizeof(raised[0]) };

enum {
	DESCRIPTORS_PER_RANK = 2, /* its link, and what it prints */
	DESCRIPTORS_ELSE = 62,    /* and the other ends of those while a process is started */
};

static const rlim_t STACK_BYTES = 8 << 20; /* what Linux gives */

void ulimits_raise(void)
{
	struct rlimit limit;

	for (size_t i = 0; i < RAISED; i++) {
		if (getrlimit(raised[i].resource, &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(raised[i].resource, &limit) < 0)
			continue; /* ulimits_check says so, once there is a log */
	}
}

int ulimits_raise_stack(void)
{
	pthread_attr_t attributes;
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) < 0)
		return 0;
	if (limit.rlim_max < (rlim_t)ULIMITS_STACK_KIB << 10)
		return -ENOMEM;
	if (limit.rlim_cur >= STACK_BYTES)
		return 0;
	limit.rlim_cur = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
	if (setrlimit(RLIMIT_STACK, &limit) < 0 || pthread_attr_init(&attributes) != 0)
		return 0;
	pthread_attr_setstacksize(&attributes, (size_t)limit.rlim_cur);
	pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
	return 0;
}

int64_t ulimits_descriptors_kept(int64_t ranks)
{
	return DESCRIPTORS_ELSE + ranks * DESCRIPTORS_PER_RANK;
}

int ulimits_descriptors(const struct settings *s, struct ulimits_descriptors *out)
{
	const int64_t kept = ulimits_descriptors_kept(s->ranks);
	struct rlimit limit;
	const char *plural = s->ranks == 1 ? "" : "s";
	char all[32] = "no limit";

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -errno;
	*out = (struct ulimits_descriptors){0};
	if (limit.rlim_max != RLIM_INFINITY)
		snprintf(all, sizeof(all), "%llu", (unsigned long long)limit.rlim_max);
	if (limit.rlim_max < (rlim_t)(kept + ULIMITS_CLIENTS_MIN)) {
		out->too_few = true;
		out->advice = "raise the limit (LimitNOFILE= of the unit, ulimit -Hn)";
		snprintf(out->text, sizeof(out->text),
			"%s descriptors, %lld needed at least (%lld for %lld rank%s and files, %d "
			"for clients)",
			all, (long long)(kept + ULIMITS_CLIENTS_MIN), (long long)kept,
			(long long)s->ranks, plural, ULIMITS_CLIENTS_MIN);
	} else if (limit.rlim_max < (rlim_t)(kept + s->clients_max)) {
		out->advice = "raise the limit (LimitNOFILE= of the unit, ulimit -Hn), or lower "
			      "clients";
		snprintf(out->text, sizeof(out->text),
			"%s descriptors, %lld of them kept for %lld rank%s and files: fewer than "
			"clients (%lld) are let in",
			all, (long long)kept, (long long)s->ranks, plural,
			(long long)s->clients_max);
	} else {
		snprintf(out->text, sizeof(out->text),
			"%s, %lld of them kept for %lld rank%s and files", all, (long long)kept,
			(long long)s->ranks, plural);
	}
	return 0;
}

static int check_descriptors(const struct settings *s)
{
	struct ulimits_descriptors found;

	if (ulimits_descriptors(s, &found) < 0 || found.advice == NULL)
		return 0;
	log_write(found.too_few ? LOG_ERROR : LOG_WARNING, "%s; %s", found.text, found.advice);
	return found.too_few ? -EMFILE : 0;
}

int ulimits_check(const struct settings *s)
{
	struct rlimit limit;

	for (size_t i = 0; i < RAISED; i++)
		if (getrlimit(raised[i].resource, &limit) == 0 && limit.rlim_cur != limit.rlim_max)
			log_write(LOG_WARNING, "the soft limit on %s could not be raised",
				raised[i].name);
	return check_descriptors(s);
}

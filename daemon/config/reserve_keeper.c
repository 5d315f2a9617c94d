#include "daemon/config/reserve_keeper.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "daemon/config/log.h"
#include "daemon/config/reserve.h"
#include "proto/state_files.h"

static struct reserve_keeper *of_job(struct worker_job *job)
{
	return (struct reserve_keeper *)(void *)((char *)job -
		offsetof(struct reserve_keeper, job));
}

static int work(struct worker_job *job)
{
	return reserve_make(of_job(job)->state_dir);
}

static void done(struct worker_job *job, int rc)
{
	struct reserve_keeper *k = of_job(job);
	bool missed = rc < 0 && rc != -ECANCELED;

	k->at_work = false;
	if (missed && rc != k->rc)
		log_write(LOG_WARNING, "%s/" STATE_RESERVE ": it could not be made: %s",
			k->state_dir, strerror(-rc));
	else if (rc == 0 && k->rc < 0)
		log_write(LOG_INFO, "%s/" STATE_RESERVE ": there again", k->state_dir);
	k->rc = rc;
	if (missed)
		k->on_missed(k->arg);
}

void reserve_keeper_init(struct reserve_keeper *k, struct worker *worker, const char *state_dir,
	void (*on_missed)(void *arg), void *arg)
{
	*k = (struct reserve_keeper){
		.worker = worker,
		.state_dir = state_dir,
		.on_missed = on_missed,
		.arg = arg,
		.job = {.work = work, .done = done},
	};
}

void reserve_keeper_look(struct reserve_keeper *k)
{
	if (k->at_work)
		return;
	k->at_work = true;
	worker_add(k->worker, &k->job);
}

void reserve_keeper_gone(struct reserve_keeper *k)
{
	log_write(LOG_WARNING,
		"%s/" STATE_RESERVE ": given up, " STATE_DATABASE " needs its room and more",
		k->state_dir);
	reserve_keeper_look(k);
}

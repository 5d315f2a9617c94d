/* The messages of a wire: sending, receiving, waiting, and the causes that end a wait. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm/ucx_private.h"
#include "proto/host/clock.h"

enum {
	SPIN_TURNS = 200, /* turns without progress before sleeping: about 50 us alone on a core */
	YIELD_AFTER_TURNS = 20,
	DEADLINE_TURNS = 4096, /* busy iterations between two checks of the peers */
	SLEEP_MS = 100,        /* longest sleep, so that the deadline is checked */
};

/* From the sign that a peer is lost until it counts as lost: its last messages arrive meanwhile. */
static const int64_t lost_grace_ns = 200 * CLOCK_MS_NS;
/* Time limit for notifying others of a failure, and for cancelling receives. */
static const int64_t tell_ns = 50 * CLOCK_MS_NS;
static const int64_t tell_flush_ns = 500 * CLOCK_MS_NS;

static void finish_message(struct ucx_message *m, ucs_status_t status, size_t bytes)
{
	m->request = NULL;
	m->status = status;
	m->bytes = bytes;
	m->state = UCX_MESSAGE_DONE;
	m->wire->completions++;
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
	struct ucx_message *m = user_data;

	finish_message(m, status, 0);
	m->wire->ucx.request_free(request);
}

static void on_received(
	void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
	struct ucx_message *m = user_data;

	finish_message(m, status, status == UCS_OK ? info->length : 0);
	m->wire->ucx.request_free(request);
}

void ucx_wire_send(struct ucx_wire *w, int peer, uint64_t tag, const void *buf, size_t bytes,
	struct ucx_message *m)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = on_sent,
		.user_data = m,
	};
	ucs_status_ptr_t request;

	*m = (struct ucx_message){.state = UCX_MESSAGE_POSTED, .wire = w};
	request = w->ucx.tag_send_nbx(w->peers[peer].ep, buf, bytes, tag, &param);
	if (UCS_PTR_IS_PTR(request))
		m->request = request;
	else
		finish_message(m, UCS_PTR_RAW_STATUS(request), 0);
}

/*
 * No immediate completion: UCX 1.13 then does not set the length of received data. Its callback may
 * run before the call returns.
 */
static void receive_masked(struct ucx_wire *w, uint64_t tag, uint64_t mask, void *buf, size_t bytes,
	struct ucx_message *m)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
			UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.cb.recv = on_received,
		.user_data = m,
	};
	ucs_status_ptr_t request;

	*m = (struct ucx_message){.state = UCX_MESSAGE_POSTED, .wire = w};
	request = w->ucx.tag_recv_nbx(w->worker, buf, bytes, tag, mask, &param);
	if (UCS_PTR_IS_ERR(request))
		finish_message(m, UCS_PTR_STATUS(request), 0);
	else if (m->state == UCX_MESSAGE_POSTED)
		m->request = request;
}

void ucx_wire_receive(
	struct ucx_wire *w, uint64_t tag, void *buf, size_t bytes, struct ucx_message *m)
{
	receive_masked(w, tag, UINT64_MAX, buf, bytes, m);
}

/* ---- failures ---- */

void ucx_wire_fail(struct ucx_wire *w, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&w->error_lock);
	if (!atomic_load(&w->failed)) {
		va_start(args, format);
		vsnprintf(w->error, sizeof w->error, format, args);
		va_end(args);
		atomic_store(&w->failed, true);
	}
	pthread_mutex_unlock(&w->error_lock);
}

const char *ucx_wire_error(const struct ucx_wire *w)
{
	return atomic_load(&w->failed) ? w->error : NULL;
}

/* One posted receive is always ready for a failure report of another rank. */
void ucx_wire_listen(struct ucx_wire *w)
{
	receive_masked(w, UCX_WIRE_TAG_FAILURE, UCX_WIRE_TAG_KIND_MASK, w->heard, sizeof w->heard,
		&w->hear);
}

static int take_heard(struct ucx_wire *w)
{
	if (w->hear.status == UCS_OK) {
		w->heard[sizeof w->heard - 1] = '\0';
		ucx_wire_fail(w, "%s", w->heard);
	} else {
		ucx_wire_fail(w, "rank %d: the receive for failures of other ranks ended: %s",
			w->rank, w->ucx.status_string(w->hear.status));
	}
	return -ECANCELED;
}

static bool telling(const struct ucx_wire *w)
{
	for (int p = 0; p < w->world; p++)
		if (w->peers[p].tell.state == UCX_MESSAGE_POSTED)
			return true;
	return false;
}

void ucx_wire_tell(struct ucx_wire *w)
{
	const char *error = ucx_wire_error(w);
	int64_t end_ns = clock_mono_ns() + tell_ns;

	assert(error != NULL);
	snprintf(w->failure_report, sizeof w->failure_report, "%s (reported by rank %d)", error,
		w->rank);
	for (int p = 0; p < w->world; p++)
		if (w->peers[p].ep != NULL && w->peers[p].lost_ns == 0)
			ucx_wire_send(w, p, UCX_WIRE_TAG_FAILURE, w->failure_report,
				sizeof w->failure_report, &w->peers[p].tell);
	while (telling(w) && clock_mono_ns() < end_ns)
		if (w->ucx.worker_progress(w->worker) == 0)
			sched_yield();
	/* over tcp it may still lie in UCX's buffers, behind pieces of the collective */
	if (w->uses_network)
		ucx_wire_flush(w, clock_mono_ns() + tell_flush_ns);
}

static bool any_posted(const struct ucx_message *messages, int count)
{
	for (int i = 0; i < count; i++)
		if (messages[i].state == UCX_MESSAGE_POSTED)
			return true;
	return false;
}

void ucx_wire_cancel(struct ucx_wire *w, struct ucx_message *messages, int count)
{
	int64_t end_ns = clock_mono_ns() + tell_ns;

	for (int i = 0; i < count; i++)
		if (messages[i].state == UCX_MESSAGE_POSTED)
			w->ucx.request_cancel(w->worker, messages[i].request);
	while (any_posted(messages, count) && clock_mono_ns() < end_ns)
		if (w->ucx.worker_progress(w->worker) == 0)
			sched_yield();
}

/* ---- waiting ---- */

void ucx_wire_begin(struct ucx_wire *w)
{
	w->moved_ns = clock_mono_ns();
	w->seen = w->completions;
	w->idle = 0;
}

void ucx_wire_mark_lost(struct ucx_wire *w, int peer, ucs_status_t status)
{
	struct ucx_peer *p = &w->peers[peer];
	char pair[UCX_PAIR_BYTES];

	if (p->lost_ns != 0)
		return;
	p->lost_ns = clock_mono_ns();
	snprintf(p->lost_why, sizeof p->lost_why, "%s%s", w->ucx.status_string(status),
		ucx_wire_pair(w, peer, pair));
}

static void look_at_processes(struct ucx_wire *w)
{
	for (int p = 0; p < w->world; p++) {
		if (w->polled[p].revents == 0)
			continue;
		ucx_wire_mark_lost(w, p, UCS_ERR_CONNECTION_RESET);
		snprintf(w->peers[p].lost_why, sizeof w->peers[p].lost_why, "its process ended");
		close(w->polled[p].fd);
		w->polled[p].fd = -1;
	}
}

const char *ucx_wire_peer_lost(struct ucx_wire *w, int peer)
{
	const struct ucx_peer *p = &w->peers[peer];

	if (p->lost_ns == 0 || clock_mono_ns() - p->lost_ns < lost_grace_ns)
		return NULL;
	/* on a busy machine the grace time may end before the next check */
	if (poll(w->polled, (nfds_t)w->world, 0) > 0)
		look_at_processes(w);
	return p->lost_why;
}

static bool any_lost(const struct ucx_wire *w)
{
	for (int p = 0; p < w->world; p++)
		if (w->peers[p].lost_ns != 0)
			return true;
	return false;
}

/*
 * Sleeps until there is work, or only checks the processes: UCX counts failed attempts to send to a
 * full queue as progress, so a dead peer must also be noticed while it seems busy. The last entry
 * of polled is the worker's descriptor.
 */
static void look_around(struct ucx_wire *w, bool sleep)
{
	int timeout_ms = 0, descriptors = w->world;

	if (sleep && w->ucx.worker_arm(w->worker) == UCS_OK) {
		timeout_ms = any_lost(w) ? 10 : SLEEP_MS;
		descriptors++;
	}
	w->polled[w->world].revents = 0;
	if (poll(w->polled, (nfds_t)descriptors, timeout_ms) > 0) {
		if (w->polled[w->world].revents != 0)
			w->idle = 0;
		look_at_processes(w);
	}
}

int ucx_wire_turn(struct ucx_wire *w)
{
	int64_t now;
	bool idle = false;

	if (w->hear.state == UCX_MESSAGE_DONE)
		return take_heard(w);
	if (w->ucx.worker_progress(w->worker) != 0) {
		w->idle = 0;
		if (++w->turns % DEADLINE_TURNS != 0)
			return 0;
	} else if (++w->idle < SPIN_TURNS) {
		if (w->idle > YIELD_AFTER_TURNS)
			sched_yield();
		return 0;
	} else {
		idle = true;
	}
	now = clock_mono_ns();
	if (w->completions != w->seen) {
		w->seen = w->completions;
		w->moved_ns = now;
	} else if (now - w->moved_ns >= w->timeout_ns) {
		return -ETIMEDOUT;
	}
	look_around(w, idle);
	return 0;
}

int ucx_wire_watch(struct ucx_wire *w)
{
	while (w->ucx.worker_progress(w->worker) != 0)
		;
	if (w->hear.state == UCX_MESSAGE_DONE)
		return take_heard(w);
	if (poll(w->polled, (nfds_t)w->world, 0) > 0)
		look_at_processes(w);
	for (int p = 0; p < w->world; p++) {
		const char *why = ucx_wire_peer_lost(w, p);

		if (why != NULL) {
			ucx_wire_fail(w, "rank %d: %s", p, why);
			return -ECONNRESET;
		}
	}
	return 0;
}

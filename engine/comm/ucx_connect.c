/* How the ranks of a wire connect: addresses, endpoints, one hello each way. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/comm/nodes.h"
#include "engine/comm/ucx_private.h"
#include "proto/host/clock.h"
#include "proto/host/procfs.h"

/* After a peer was found dead: how long to wait for another rank's report of the cause. */
static const int64_t hear_ns = 200 * CLOCK_MS_NS;
/*
 * For hellos of other nodes: all ranks run by then, and a network that drops packets reports
 * nothing.
 */
static const int64_t hello_ns = 20 * CLOCK_S_NS;

const char *ucx_wire_pair(const struct ucx_wire *w, int peer, char out[UCX_PAIR_BYTES])
{
	out[0] = '\0';
	if (w->peers[peer].remote)
		snprintf(out, UCX_PAIR_BYTES, " (%s -> %s)", w->own.at, w->peers[peer].address.at);
	return out;
}

static int parse_addresses(struct ucx_wire *w, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes)
{
	char why[160], pair[UCX_PAIR_BYTES];

	for (int p = 0; p < w->world; p++) {
		struct ucx_address *a = &w->peers[p].address;
		int status = ucx_address_parse(addresses[p], a);

		if (status != 0) {
			snprintf(error, error_bytes,
				"rank %d: the address of rank %d is invalid: %s", w->rank, p,
				strerror(-status));
			return status;
		}
		if (a->rank != p) {
			snprintf(error, error_bytes, "rank %d: address %d is that of rank %d",
				w->rank, p, a->rank);
			return -EINVAL;
		}
		w->peers[p].remote = !nodes_together(nodes, p, w->rank);
		w->peers[p].reported = w->peers[p].remote || !w->shares_memory;
		if (ucx_address_compare(&w->own, a, why, sizeof why) != 0) {
			snprintf(error, error_bytes, "rank %d and rank %d%s: %s", w->rank, p,
				ucx_wire_pair(w, p, pair), why);
			return -EPROTO;
		}
	}
	if (w->peers[w->rank].address.nonce != w->own.nonce) {
		snprintf(error, error_bytes, "rank %d: its address belongs to another process",
			w->rank);
		return -EINVAL;
	}
	return 0;
}

static void on_endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_peer *p = arg;

	ucx_wire_mark_lost(p->wire, p->rank, status);
}

static ucs_status_t create_endpoint(struct ucx_wire *w, int peer)
{
	struct ucx_peer *p = &w->peers[peer];
	ucp_ep_params_t params = {
		.field_mask =
			UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.address = p->address.worker,
		/* mode PEER excludes shared memory (UCX 1.13 to 1.18) */
		.err_mode = p->reported ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
		.err_handler = {.cb = on_endpoint_error, .arg = p},
	};
	ucs_status_t status;

	if (p->reported)
		params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
	status = w->ucx.ep_create(w->worker, &params, &p->ep);
	if (status != UCS_OK)
		p->ep = NULL;
	return status;
}

/*
 * Watches a peer on this node, so that its end is noticed at once. False: it has already ended. The
 * daemon of another node watches its own ranks, also if both are on one machine.
 */
static bool watch_process(struct ucx_wire *w, int peer)
{
	const struct ucx_address *a = &w->peers[peer].address;
	struct pollfd *polled = &w->polled[peer];

	if (w->peers[peer].remote || strcmp(a->host, w->own.host) != 0 ||
		strchr(a->host, '?') != NULL)
		return true;
	polled->fd = (int)syscall(SYS_pidfd_open, (pid_t)a->pid, 0);
	if (polled->fd < 0)
		return errno != ESRCH;
	return poll(polled, 1, 0) <= 0;
}

/* The next peer after p whose hello was not received or not sent; w->world if none. */
static int next_missing(const struct ucx_wire *w, int p)
{
	do
		p++;
	while (p < w->world &&
		(p == w->rank ||
			(w->peers[p].hello[0].state == UCX_MESSAGE_DONE &&
				w->peers[p].hello[1].state == UCX_MESSAGE_DONE)));
	return p;
}

static int check_hello(struct ucx_wire *w, int peer, char *error, size_t error_bytes)
{
	const struct ucx_peer *p = &w->peers[peer];
	ucs_status_t status =
		p->hello[0].status != UCS_OK ? p->hello[0].status : p->hello[1].status;
	char pair[UCX_PAIR_BYTES];

	if (status != UCS_OK) {
		snprintf(error, error_bytes, "rank %d: hello with rank %d%s: %s", w->rank, peer,
			ucx_wire_pair(w, peer, pair), w->ucx.status_string(status));
		return -EIO;
	}
	if (p->hello[1].bytes != sizeof p->hello_in || p->hello_in.from != p->address.nonce ||
		p->hello_in.to != w->own.nonce) {
		snprintf(error, error_bytes,
			"rank %d: hello of rank %d is from or for another process", w->rank, peer);
		return -EPROTO;
	}
	return 0;
}

/* Every peer whose hello is missing, as far as there is room: the pairs show a broken link. */
static void list_missing(
	const struct ucx_wire *w, int64_t waited_ns, char *error, size_t error_bytes)
{
	char pair[UCX_PAIR_BYTES];
	size_t used = (size_t)snprintf(error, error_bytes, "rank %d: no hello for %g s from",
		w->rank, (double)waited_ns * 1e-9);
	const char *comma = "";

	for (int p = next_missing(w, -1); p < w->world && used < error_bytes;
		p = next_missing(w, p), comma = ",")
		used += (size_t)snprintf(error + used, error_bytes - used, "%s rank %d%s", comma, p,
			ucx_wire_pair(w, p, pair));
}

static int64_t hello_limit_ns(const struct ucx_wire *w)
{
	bool remote = false;

	for (int p = 0; p < w->world; p++)
		remote = remote || w->peers[p].remote;
	return remote && hello_ns < w->timeout_ns ? hello_ns : w->timeout_ns;
}

static int wait_for_hellos(struct ucx_wire *w, char *error, size_t error_bytes)
{
	const int64_t limit_ns = hello_limit_ns(w), begin_ns = clock_mono_ns();
	int p, status = 0;

	ucx_wire_begin(w);
	while ((p = next_missing(w, -1)) < w->world && status == 0) {
		const char *lost = ucx_wire_peer_lost(w, p);

		if (lost != NULL) {
			snprintf(error, error_bytes, "rank %d: rank %d: %s before its hello",
				w->rank, p, lost);
			return -ECONNRESET;
		}
		status = ucx_wire_turn(w);
		if (status == 0 && clock_mono_ns() - begin_ns >= limit_ns)
			status = -ETIMEDOUT;
	}
	if (status == -ETIMEDOUT)
		list_missing(w, limit_ns, error, error_bytes);
	else if (status != 0)
		snprintf(error, error_bytes, "%s", ucx_wire_error(w));
	return status;
}

static int exchange_hellos(struct ucx_wire *w, char *error, size_t error_bytes)
{
	int status;

	for (int r = 0; r < w->world; r++) {
		struct ucx_peer *p = &w->peers[r];

		if (r == w->rank)
			continue;
		p->hello_out = (struct ucx_hello){w->own.nonce, p->address.nonce};
		ucx_wire_receive(w, UCX_WIRE_TAG_HELLO | (uint64_t)r, &p->hello_in,
			sizeof p->hello_in, &p->hello[1]);
		ucx_wire_send(w, r, UCX_WIRE_TAG_HELLO | (uint64_t)w->rank, &p->hello_out,
			sizeof p->hello_out, &p->hello[0]);
	}
	status = wait_for_hellos(w, error, error_bytes);
	for (int p = 0; p < w->world && status == 0; p++)
		if (p != w->rank)
			status = check_hello(w, p, error, error_bytes);
	return status;
}

/*
 * Creates all possible endpoints, also after a failure, because the others must be notified. None
 * to a process that has ended: UCX 1.13 may abort if a connection over tcp is refused.
 */
static int create_endpoints(struct ucx_wire *w, char *error, size_t error_bytes)
{
	char why[160] = "", pair[UCX_PAIR_BYTES];
	const int proc = procfs_check(why, sizeof why); /* UCX opens /proc/PID/fd of its peers */
	int first = 0;

	for (int p = 0; p < w->world; p++) {
		ucs_status_t status = UCS_ERR_UNREACHABLE;
		bool lives;

		if (p == w->rank)
			continue;
		lives = watch_process(w, p);
		if (lives)
			status = create_endpoint(w, p);
		if (status == UCS_OK || first != 0)
			continue;
		first = -EHOSTUNREACH;
		if (lives)
			snprintf(error, error_bytes,
				"rank %d: cannot reach rank %d%s with UCX_TLS=%s: %s%s%s", w->rank,
				p, ucx_wire_pair(w, p, pair), w->transports,
				w->ucx.status_string(status), proc < 0 ? "; " : "", why);
		else
			snprintf(error, error_bytes, "rank %d: rank %d: its process has ended",
				w->rank, p);
	}
	return first;
}

/*
 * After a peer was found dead or unreachable: another rank may have noticed first, and reported the
 * cause.
 */
static bool hears_cause(struct ucx_wire *w)
{
	int64_t end_ns = clock_mono_ns() + hear_ns;
	int status = 0;

	ucx_wire_begin(w);
	while (status == 0 && clock_mono_ns() < end_ns)
		status = ucx_wire_turn(w);
	return status == -ECANCELED;
}

int ucx_wire_connect(struct ucx_wire *w, const char *const *addresses, const int *nodes,
	char *error, size_t error_bytes)
{
	sigset_t all, before;
	int status;

	if (w->connected || ucx_wire_error(w) != NULL) {
		snprintf(error, error_bytes, "rank %d: already connected, or failed to connect",
			w->rank);
		return -EISCONN;
	}
	status = parse_addresses(w, addresses, nodes, error, error_bytes);
	if (status != 0) {
		ucx_wire_fail(w, "%s", error);
		return status;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ucx_wire_listen(w);
	status = create_endpoints(w, error, error_bytes);
	if (status == 0) {
		status = exchange_hellos(w, error, error_bytes);
	} else if (hears_cause(w)) {
		status = -ECANCELED;
		snprintf(error, error_bytes, "%s", ucx_wire_error(w));
	}
	if (status != 0) {
		ucx_wire_fail(w, "%s", error);
		if (status != -ECANCELED)
			ucx_wire_tell(w);
	}
	w->connected = status == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

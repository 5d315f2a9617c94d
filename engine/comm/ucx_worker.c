/* UCX's part of a wire: environment, context, worker, address, end. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/comm/interface.h"
#include "engine/comm/ucx_private.h"
#include "proto/host/clock.h"
#include "proto/host/memory.h"

static const int64_t flush_ns = 2 * CLOCK_S_NS;

/* UCP settings that all ranks must share; those that a version does not have are omitted. */
static const char *const shared_settings[] = {
	"UCX_TLS",
	"UCX_PROTO_ENABLE",
	"UCX_PROTO_INDIRECT_ID",
	"UCX_ADDRESS_VERSION",
	"UCX_SA_DATA_VERSION",
	"UCX_UNIFIED_MODE",
	"UCX_PROTOS",
	"UCX_RNDV_SCHEME",
	"UCX_SEG_SIZE",
	"UCX_MAX_EAGER_RAILS",
	"UCX_MAX_EAGER_LANES",
	"UCX_MAX_RNDV_RAILS",
	"UCX_MAX_RNDV_LANES",
	"UCX_MULTI_LANE_MAX_RATIO",
	"UCX_RKEY_MPOOL_MAX_MD",
};

/*
 * UCX's messages on this thread while a worker was created, because its functions return an
 * input/output error for every failure. The first line is the cause, the last one the consequence.
 */
struct complaint {
	char first[200], last[100];
};

static _Thread_local struct complaint *heard;

/*
 * Warnings and worse go to stderr. UCX's own handler ends the process if a copy from the memory of
 * a dead process fails (UCX 1.13, cma); the message's status reports that failure as well.
 */
__attribute__((format(printf, 6, 0))) static ucs_log_func_rc_t log_to_stderr(const char *file,
	unsigned line, const char *function, ucs_log_level_t level,
	const ucs_log_component_config_t *component, const char *message, va_list args)
{
	char text[512];

	if (level <= UCS_LOG_LEVEL_WARN && vsnprintf(text, sizeof text, message, args) > 0)
		fprintf(stderr, "ucx: %s\n", text);
	else
		return UCS_LOG_FUNC_RC_STOP;
	if (heard != NULL && heard->first[0] == '\0')
		snprintf(heard->first, sizeof heard->first, "%.199s", text);
	else if (heard != NULL)
		snprintf(heard->last, sizeof heard->last, "%.99s", text);
	return UCS_LOG_FUNC_RC_STOP;
}

/* Names of transports in a UCX_TLS value that move data through shared memory. */
static bool names_shared_memory(const char *transports)
{
	static const char *const shared[] = {
		"all", "sm", "shm", "mm", "posix", "sysv", "cma", "xpmem", "knem"};
	char list[256], *save = NULL;

	if (transports[0] == '^')
		return true;
	snprintf(list, sizeof list, "%s", transports);
	for (char *t = strtok_r(list, ",", &save); t != NULL; t = strtok_r(NULL, ",", &save))
		for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
			if (strcmp(t, shared[i]) == 0)
				return true;
	return false;
}

/*
 * UCX_TLS: self,posix,cma unless given: no port is opened. (Not sm, which has System V memory too:
 * a process killed at a bad moment leaves its segments for ever.) With an interface, tcp beside
 * them: endpoints in mode PEER, those to other nodes, take no shared memory. With shared memory:
 *   UCX_POSIX_DIR: ucx_shm.h; UCX_POSIX_USE_PROC_LINK=y, so that files are unlinked once made.
 * With an interface, or any value that was given:
 *   UCX_NET_DEVICES=the interface, lo without one, unless given: UCX would listen on every one;
 *   UCX_TCP_CM_REUSEADDR=y, or a port stays blocked for a minute after a kill;
 *   UCX_TCP_CONN_NB=y: UCX 1.13 aborts when a peer ends between a blocking connect and the first
 *   bytes sent there (tcp_ep.c: the endpoint fails before it counts as one that sends).
 * With endpoints in mode PEER (all, where no memory is shared):
 *   UCX_RNDV_THRESH=inf: a peer lost in the midst of a rendezvous ends this process too (UCX 1.16:
 *   SIGSEGV, 1.13: an assertion); large messages take a fifth to a half longer for it;
 *   UCX_ZCOPY_THRESH=inf: UCX 1.13 aborts when a peer is lost while a message is sent from where
 *   it lies (uct_iface.h: comp->count > 0).
 * Transport settings are read from the environment alone, so ucp_config_modify would not do.
 */
static int set_environment(struct ucx_wire *w, char *why, size_t why_bytes)
{
	static const char inside_node[] = "self,posix,cma", between_nodes[] = "self,posix,cma,tcp";
	const char *transports = getenv("UCX_TLS");
	int status = 0;

	if (transports == NULL || transports[0] == '\0')
		transports = w->interface ? between_nodes : inside_node;
	if (snprintf(w->transports, sizeof w->transports, "%s", transports) >=
		(int)sizeof w->transports)
		return -EINVAL;
	w->shares_memory = names_shared_memory(w->transports);
	w->uses_network = !w->shares_memory || w->interface != NULL;
	if (setenv("UCX_TLS", w->transports, 1) != 0)
		return -ENOMEM;
	if (strcmp(w->transports, inside_node) != 0 &&
		(setenv("UCX_NET_DEVICES", w->interface ? w->interface : "lo", 0) != 0 ||
			setenv("UCX_TCP_CM_REUSEADDR", "y", 1) != 0 ||
			setenv("UCX_TCP_CONN_NB", "y", 1) != 0))
		return -ENOMEM;
	if (w->uses_network &&
		(setenv("UCX_RNDV_THRESH", "inf", 1) != 0 ||
			setenv("UCX_ZCOPY_THRESH", "inf", 1) != 0))
		return -ENOMEM;
	if (!w->shares_memory)
		return 0;
	if (setenv("UCX_POSIX_USE_PROC_LINK", "y", 1) != 0)
		return -ENOMEM;
	status = ucx_shm_enter(&w->shm);
	if (status != 0)
		snprintf(why, why_bytes, "%s: cannot create a directory for shared memory: %s",
			w->shm.path, strerror(-status));
	return status;
}

/* Lines "version V" and "KEY VALUE" of the shared settings, as UCX itself prints them. */
static int list_settings(
	const struct ucx_wire *w, const ucp_config_t *config, char *out, size_t out_bytes)
{
	char *text = NULL, *save = NULL;
	size_t text_bytes = 0, used;
	FILE *f = open_memstream(&text, &text_bytes);

	if (f == NULL)
		return -ENOMEM;
	w->ucx.config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
	if (fclose(f) != 0 || text == NULL) {
		free(text);
		return -ENOMEM;
	}
	used = (size_t)snprintf(out, out_bytes, "UCX %s\n", w->ucx.get_version_string());
	for (char *line = strtok_r(text, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		size_t key_bytes = strcspn(line, "=");

		for (size_t i = 0; i < sizeof shared_settings / sizeof *shared_settings; i++) {
			if (strlen(shared_settings[i]) != key_bytes ||
				strncmp(line, shared_settings[i], key_bytes) != 0 ||
				line[key_bytes] != '=')
				continue;
			if (used < out_bytes)
				used += (size_t)snprintf(out + used, out_bytes - used, "%s %s\n",
					shared_settings[i], line + key_bytes + 1);
		}
	}
	free(text);
	return used < out_bytes ? 0 : -EOVERFLOW;
}

/* The scope of a process ID: this boot of this machine, this pid namespace. */
static void describe_host(char *out, size_t out_bytes)
{
	char boot[40] = "?", space[40] = "?";
	ssize_t n;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		n = read(fd, boot, sizeof boot - 1);
		boot[n > 0 ? n : 0] = '\0';
		boot[strcspn(boot, "\n")] = '\0';
		close(fd);
	}
	n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
	space[n > 0 ? n : 0] = '\0';
	snprintf(out, out_bytes, "%s/%s", boot, space);
}

static int create_worker(struct ucx_wire *w)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
			UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
		.estimated_num_eps = (size_t)w->world - 1,
		.estimated_num_ppn = (size_t)w->world,
		.name = "gpt2-engine",
	};
	ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucp_config_t *config;
	ucp_address_t *address;
	int status;

	if (w->ucx.config_read(NULL, NULL, &config) != UCS_OK)
		return -EINVAL;
	status = list_settings(w, config, w->own.settings, sizeof w->own.settings);
	if (status == 0 &&
		w->ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &w->context) !=
			UCS_OK) {
		w->context = NULL;
		status = -EIO;
	}
	w->ucx.config_release(config);
	if (status != 0)
		return status;
	if (w->ucx.worker_create(w->context, &worker_params, &w->worker) != UCS_OK) {
		w->worker = NULL;
		return -EIO;
	}
	if (w->ucx.worker_get_efd(w->worker, &w->polled[w->world].fd) != UCS_OK ||
		w->ucx.worker_get_address(w->worker, &address, &w->own.worker_bytes) != UCS_OK)
		return -EIO;
	w->own.worker = address;
	w->own_text = ucx_address_format(&w->own);
	w->ucx.worker_release_address(w->worker, address);
	w->own.worker = NULL;
	return 0;
}

static int create_worker_or_say(struct ucx_wire *w, char *why, size_t why_bytes)
{
	struct complaint said = {.first = ""};
	int status;

	heard = &said;
	status = create_worker(w);
	heard = NULL;
	/* UCX itself only reports that memory is short */
	if (status == -EIO && ucx_shm_is_short(&w->shm, w->world, why, why_bytes))
		return -ENOSPC;
	if (status == -EIO && said.first[0] != '\0')
		snprintf(why, why_bytes, "UCX with UCX_TLS=%.64s: %s%s%s", w->transports,
			said.first, said.last[0] != '\0' ? "; " : "", said.last);
	return status;
}

static void allocate(struct ucx_wire *w)
{
	size_t world = (size_t)w->world;

	w->peers = memory_zeroed(world, sizeof *w->peers);
	w->polled = memory_zeroed(world + 1, sizeof *w->polled);
	for (int p = 0; p < w->world; p++) {
		w->peers[p].wire = w;
		w->peers[p].rank = p;
	}
	for (int p = 0; p <= w->world; p++)
		w->polled[p] = (struct pollfd){.fd = -1, .events = POLLIN};
}

int ucx_wire_create(
	const struct ucx_wire_options *options, struct ucx_wire **out, char *why, size_t why_bytes)
{
	const int rank = options->rank, world = options->world;
	struct ucx_wire *w;
	sigset_t all, before;
	int status;

	if (world < 2 || world > UCX_WIRE_WORLD_MAX || rank < 0 || rank >= world ||
		options->timeout_ns <= 0)
		return -EINVAL;
	w = memory_zeroed(1, sizeof *w);
	w->rank = rank;
	w->world = world;
	w->timeout_ns = options->timeout_ns;
	w->interface = options->interface;
	w->own = (struct ucx_address){.rank = rank, .world = world, .pid = getpid()};
	w->shm.fd = -1;
	pthread_mutex_init(&w->error_lock, NULL);
	describe_host(w->own.host, sizeof w->own.host);
	strcpy(w->own.at, "-");
	status = getrandom(&w->own.nonce, sizeof w->own.nonce, 0) == sizeof w->own.nonce ? 0 : -EIO;
	allocate(w);
	if (status == 0 && w->interface != NULL)
		status = interface_check(w->interface, w->own.at, why, why_bytes);
	if (status == 0)
		status = set_environment(w, why, why_bytes);
	if (status == 0) {
		/* UCX's own thread inherits the mask: it must not receive the engine's signals. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		status = ucx_library_open(&w->ucx);
		if (status == 0) {
			w->ucx.log_push_handler(log_to_stderr);
			w->log_pushed = true;
			status = create_worker_or_say(w, why, why_bytes);
		}
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (status != 0) {
		ucx_wire_destroy(w);
		return status;
	}
	*out = w;
	return 0;
}

const char *ucx_wire_address(const struct ucx_wire *w)
{
	return w->own_text;
}

const char *ucx_wire_version(const struct ucx_wire *w)
{
	return w->ucx.get_version_string();
}

const char *ucx_wire_transports(const struct ucx_wire *w)
{
	return w->transports;
}

const char *ucx_wire_devices(const struct ucx_wire *w)
{
	return w->uses_network ? getenv("UCX_NET_DEVICES") : NULL;
}

int64_t ucx_wire_timeout_ns(const struct ucx_wire *w)
{
	return w->timeout_ns;
}

void ucx_wire_set_timeout(struct ucx_wire *w, int64_t ns)
{
	w->timeout_ns = ns;
}

/* ---- end ---- */

/* Progress until a request of UCX has ended, or end_ns. A pending request is left to the worker. */
static void finish_request(struct ucx_wire *w, ucs_status_ptr_t request, int64_t end_ns)
{
	if (!UCS_PTR_IS_PTR(request))
		return;
	while (w->ucx.request_check_status(request) == UCS_INPROGRESS && clock_mono_ns() < end_ns)
		if (w->ucx.worker_progress(w->worker) == 0)
			sched_yield();
	w->ucx.request_free(request);
}

void ucx_wire_flush(struct ucx_wire *w, int64_t end_ns)
{
	ucp_request_param_t param = {.op_attr_mask = 0};

	finish_request(w, w->ucx.worker_flush_nbx(w->worker, &param), end_ns);
}

/* Mode PEER: sent data is still in UCX's buffers, and destroying the worker now would drop it. */
static void close_endpoints(struct ucx_wire *w)
{
	ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	int64_t end_ns = clock_mono_ns() + flush_ns;

	ucx_wire_flush(w, end_ns);
	for (int p = 0; p < w->world; p++) {
		if (w->peers[p].ep == NULL || !w->peers[p].reported)
			continue;
		finish_request(w, w->ucx.ep_close_nbx(w->peers[p].ep, &force), end_ns);
		w->peers[p].ep = NULL;
	}
}

/* Memory that is left to the end of the process stays reachable, for leak checkers. */
static void keep(int status, void *wire)
{
}

void ucx_wire_destroy(struct ucx_wire *w)
{
	if (w == NULL)
		return;
	ucx_shm_leave(&w->shm);
	for (int p = 0; p < w->world && w->polled != NULL; p++)
		if (w->polled[p].fd >= 0)
			close(w->polled[p].fd);
	/*
	 * UCX 1.13 aborts if a worker is destroyed with requests on endpoints in mode PEER, cannot
	 * close an endpoint by force in mode NONE, and may write into the caller's memory if it
	 * continues to progress. So a failed wire stays unchanged until the end of the process.
	 */
	if (ucx_wire_error(w) != NULL && w->worker != NULL) {
		on_exit(keep, w);
		return;
	}
	if (w->connected) {
		ucx_wire_cancel(w, &w->hear, 1);
		close_endpoints(w);
	}
	if (w->worker != NULL)
		w->ucx.worker_destroy(w->worker);
	if (w->context != NULL)
		w->ucx.cleanup(w->context);
	if (w->log_pushed)
		w->ucx.log_pop_handler();
	for (int p = 0; p < w->world && w->peers != NULL; p++)
		free(w->peers[p].address.worker);
	pthread_mutex_destroy(&w->error_lock);
	free(w->own_text);
	free(w->polled);
	free(w->peers);
	free(w);
}

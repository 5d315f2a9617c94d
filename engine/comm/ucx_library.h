/*
 * ucx_library.h: loads UCX when ranks need it.
 *
 * UCX is not linked, because it acts as soon as it is loaded, controlled only by environment
 * variables: it logs to stdout, catches SIGSEGV, and tests its memory hooks with System V segments
 * that remain if the process is killed at that moment. So the environment is set first, and a
 * single rank loads nothing.
 */
#ifndef GPT2D_ENGINE_COMM_UCX_LIBRARY_H
#define GPT2D_ENGINE_COMM_UCX_LIBRARY_H

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* UCX's functions under their own names, without the prefix ucp_ or ucs_. */
struct ucx_library {
	__typeof__(ucp_get_version_string) *get_version_string;
	__typeof__(ucp_config_read) *config_read;
	__typeof__(ucp_config_print) *config_print;
	__typeof__(ucp_config_release) *config_release;
	__typeof__(ucp_init_version) *init_version;
	__typeof__(ucp_cleanup) *cleanup;
	__typeof__(ucp_worker_create) *worker_create;
	__typeof__(ucp_worker_destroy) *worker_destroy;
	__typeof__(ucp_worker_get_efd) *worker_get_efd;
	__typeof__(ucp_worker_get_address) *worker_get_address;
	__typeof__(ucp_worker_release_address) *worker_release_address;
	__typeof__(ucp_worker_progress) *worker_progress;
	__typeof__(ucp_worker_arm) *worker_arm;
	__typeof__(ucp_worker_flush_nbx) *worker_flush_nbx;
	__typeof__(ucp_ep_create) *ep_create;
	__typeof__(ucp_ep_close_nbx) *ep_close_nbx;
	__typeof__(ucp_tag_send_nbx) *tag_send_nbx;
	__typeof__(ucp_tag_recv_nbx) *tag_recv_nbx;
	__typeof__(ucp_request_cancel) *request_cancel;
	__typeof__(ucp_request_free) *request_free;
	__typeof__(ucp_request_check_status) *request_check_status;
	__typeof__(ucs_status_string) *status_string;
	__typeof__(ucs_log_push_handler) *log_push_handler;
	__typeof__(ucs_log_pop_handler) *log_pop_handler;
};

/*
 * Loads it, for the rest of the process. 0, or -ELIBACC, or -ENOMEM; the reason is on stderr. First
 * sets UCX_LOG_FILE=stderr, unless it is set and not stdout; UCX_HANDLE_ERRORS=none, unless set:
 * UCX must not handle signals; UCX_MEM_EVENTS=n.
 */
int ucx_library_open(struct ucx_library *out);

#endif

#include "engine/comm/ucx_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "libucp.so.0";

static const struct {
	const char *symbol;
	size_t at; /* in struct ucx_library */
} functions[] = {
	{"ucp_get_version_string", offsetof(struct ucx_library, get_version_string)},
	{"ucp_config_read", offsetof(struct ucx_library, config_read)},
	{"ucp_config_print", offsetof(struct ucx_library, config_print)},
	{"ucp_config_release", offsetof(struct ucx_library, config_release)},
	{"ucp_init_version", offsetof(struct ucx_library, init_version)},
	{"ucp_cleanup", offsetof(struct ucx_library, cleanup)},
	{"ucp_worker_create", offsetof(struct ucx_library, worker_create)},
	{"ucp_worker_destroy", offsetof(struct ucx_library, worker_destroy)},
	{"ucp_worker_get_efd", offsetof(struct ucx_library, worker_get_efd)},
	{"ucp_worker_get_address", offsetof(struct ucx_library, worker_get_address)},
	{"ucp_worker_release_address", offsetof(struct ucx_library, worker_release_address)},
	{"ucp_worker_progress", offsetof(struct ucx_library, worker_progress)},
	{"ucp_worker_arm", offsetof(struct ucx_library, worker_arm)},
	{"ucp_worker_flush_nbx", offsetof(struct ucx_library, worker_flush_nbx)},
	{"ucp_ep_create", offsetof(struct ucx_library, ep_create)},
	{"ucp_ep_close_nbx", offsetof(struct ucx_library, ep_close_nbx)},
	{"ucp_tag_send_nbx", offsetof(struct ucx_library, tag_send_nbx)},
	{"ucp_tag_recv_nbx", offsetof(struct ucx_library, tag_recv_nbx)},
	{"ucp_request_cancel", offsetof(struct ucx_library, request_cancel)},
	{"ucp_request_free", offsetof(struct ucx_library, request_free)},
	{"ucp_request_check_status", offsetof(struct ucx_library, request_check_status)},
	{"ucs_status_string", offsetof(struct ucx_library, status_string)},
	{"ucs_log_push_handler", offsetof(struct ucx_library, log_push_handler)},
	{"ucs_log_pop_handler", offsetof(struct ucx_library, log_pop_handler)},
};

/*
 * Read by LeakSanitizer if the program is built with it: a worker that is left to the end of the
 * process keeps memory that only UCX's own pointers, not plain ones, lead to.
 */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libucs.so\nleak:libuct.so\nleak:libucp.so\n";
}

/*
 * Read by AddressSanitizer in the same way. UCX's libraries have thread-local memory. The
 * sanitizers of gcc 12 and clang 14 take such a block that lies 16 bytes into a page for one of
 * glibc 2.19, and the allocator's words before it for its address and length: LeakSanitizer then
 * reads there ("Tracer caught signal 11"). Which block lies so changes with any allocation before
 * it. https://github.com/google/sanitizers/issues/1322
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "intercept_tls_get_addr=0";
}

static int set_environment(void)
{
	const char *log_file = getenv("UCX_LOG_FILE");

	if (log_file == NULL || log_file[0] == '\0' || strcmp(log_file, "stdout") == 0)
		log_file = "stderr";
	if (setenv("UCX_LOG_FILE", log_file, 1) != 0 || setenv("UCX_MEM_EVENTS", "n", 1) != 0 ||
		setenv("UCX_HANDLE_ERRORS", "none", 0) != 0)
		return -ENOMEM;
	return 0;
}

int ucx_library_open(struct ucx_library *out)
{
	struct ucx_library library;
	void *handle;
	int status = set_environment();

	if (status != 0)
		return status;
	/* never unloaded: it has threads and exit handlers */
	handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (handle == NULL) {
		fprintf(stderr, "ucx: %s\n", dlerror());
		return -ELIBACC;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *address = dlsym(handle, functions[i].symbol);

		if (address == NULL) {
			fprintf(stderr, "ucx: %s\n", dlerror());
			dlclose(handle);
			return -ELIBACC;
		}
		memcpy((char *)&library + functions[i].at, &address, sizeof address);
	}
	dlclose(handle);
	*out = library;
	return 0;
}

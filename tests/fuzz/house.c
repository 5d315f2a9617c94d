#include "tests/fuzz/house.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/engines/checker.h"
#include "daemon/daemon.h"
#include "daemon/shutdown.h"
#include "daemon/startup.h"
#include "daemon/engines/engine_pool.h"
#include "daemon/engines/engine_program.h"
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "daemon/store/store.h"
#include "proto/frame.h"
#include "proto/protocol.h"
#include "proto/rpc.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/links.h"

enum {
	CLIENTS = 2,
	SETTLE_TURNS = 2000, /* bounds what one line can set going */
	STORE_WAIT_MS = 1000,
};

struct house {
	struct settings settings;
	struct engine_program program;
	struct daemon daemon;
	int fd[CLIENTS];
	struct frame *frame[CLIENTS];
};

const char *house_folder(void)
{
	static char folder[64];
	char error[256];

	if (folder[0] == '\0') {
		snprintf(folder, sizeof(folder), "%s/gpt2d-fuzz.XXXXXX",
			access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
		FUZZ_MUST(mkdtemp(folder) != NULL);
		atexit(house_clear);
		FUZZ_MUST(log_open("/dev/null", error, sizeof(error)) == 0);
		FUZZ_MUST(freopen("/dev/null", "w", stdout) != NULL); /* what says "ready" */
	}
	return folder;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	return remove(path);
}

void house_clear(void)
{
	nftw(house_folder(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void set(struct settings *s, const char *name, const char *value)
{
	char error[256];

	FUZZ_MUST(settings_set_row(s, settings_find(name), value, error, sizeof(error)) == 0);
}

static void set_path(struct settings *s, const char *name, const char *below)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", house_folder(), below);
	set(s, name, path);
}

static void call(struct house *h, int client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	FUZZ_MUST(fd >= 0);
	FUZZ_MUST(strlen(h->daemon.socket) < sizeof(address.sun_path));
	strcpy(address.sun_path, h->daemon.socket);
	/* a gpt2d that is stopping listens no more */
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return;
	}
	h->fd[client] = fd;
	h->frame[client] = frame_create(PROTOCOL_LINE_MAX);
}

void house_hang_up(struct house *h, int client)
{
	if (h->fd[client] >= 0)
		close(h->fd[client]);
	h->fd[client] = -1;
	frame_destroy(h->frame[client]);
	h->frame[client] = NULL;
	house_settle(h);
}

int house_open(struct house **out)
{
	struct house *h = calloc(1, sizeof(*h));
	char error[1024] = "";
	int rc;

	FUZZ_MUST(h != NULL);
	for (int i = 0; i < CLIENTS; i++)
		h->fd[i] = -1;
	settings_init(&h->settings);
	set_path(&h->settings, "socket", "socket");
	set_path(&h->settings, "state_dir", "state");
	set(&h->settings, "ranks", "2");
	snprintf(h->program.path, sizeof(h->program.path), "/nowhere");
	h->daemon.program = &h->program;
	h->daemon.threads = 1;
	rc = startup_run(&h->daemon, &h->settings, error, sizeof(error));
	if (rc < 0) {
		FUZZ_MUST(error[0] != '\0');
		house_close(h);
		return rc;
	}
	house_settle(h);
	*out = h;
	return 0;
}

static void check_line(const char *line, size_t n)
{
	struct rpc_message m;
	char error[256];

	FUZZ_MUST(rpc_parse(line, n, &m, NULL, error, sizeof(error)) == 0);
	FUZZ_MUST(m.kind != RPC_REQUEST);
	rpc_clear(&m);
}

/* True when something came. */
static bool listen_to(struct house *h, int client)
{
	char bytes[65536], *line;
	size_t n;
	ssize_t got;

	if (h->fd[client] < 0)
		return false;
	got = recv(h->fd[client], bytes, sizeof(bytes), 0);
	if (got == 0 || (got < 0 && errno != EAGAIN)) {
		close(h->fd[client]);
		h->fd[client] = -1;
		frame_destroy(h->frame[client]);
		h->frame[client] = NULL;
		return true;
	}
	if (got < 0)
		return false;
	frame_feed(h->frame[client], bytes, (size_t)got);
	while (frame_next(h->frame[client], &line, &n) == FRAME_LINE)
		check_line(line, n);
	return true;
}

static bool turn(struct house *h)
{
	struct daemon *d = &h->daemon;
	struct pollfd store = {.fd = store_fd(d->store), .events = POLLIN};
	bool moved = false;

	/* what cannot be written is tried again for ever */
	if (!store_idle(d->store) && !store_failing(d->store))
		moved = poll(&store, 1, STORE_WAIT_MS) > 0;
	event_base_loop(d->base, EVLOOP_NONBLOCK);
	moved |= links_turn();
	engine_pool_reap(d->pool);
	checker_reap(d->checker);
	for (int i = 0; i < CLIENTS; i++)
		moved |= listen_to(h, i);
	return moved;
}

void house_settle(struct house *h)
{
	/* what one turn makes active runs in the next: quiet is five turns without a move */
	for (int turns = 0, quiet = 0; turns < SETTLE_TURNS && quiet < 5; turns++)
		quiet = turn(h) ? 0 : quiet + 1;
}

void house_hear(struct house *h, int client, const void *bytes, size_t n)
{
	static const char hello[] =
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"protocol\":1}}\n";

	if (h->fd[client] < 0) {
		call(h, client);
		if (h->fd[client] < 0 || send(h->fd[client], hello, sizeof(hello) - 1, 0) < 0)
			return;
	}
	/* what does not fit the socket's buffer is lost, as if the client had gone */
	if (send(h->fd[client], bytes, n, MSG_NOSIGNAL) < 0)
		house_hang_up(h, client);
	house_settle(h);
}

void house_close(struct house *h)
{
	bool started = h->daemon.control != NULL;

	if (started) {
		shutdown_begin(&h->daemon, true);
		house_settle(h);
	}
	for (int i = 0; i < CLIENTS; i++) {
		if (h->fd[i] >= 0)
			close(h->fd[i]);
		frame_destroy(h->frame[i]);
	}
	startup_undo(&h->daemon);
	settings_finish(&h->settings);
	free(h);
}

#include "daemon/checks.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/config/log.h"
#include "daemon/config/paths.h"
#include "daemon/config/place.h"
#include "daemon/engines/engine_probe.h"
#include "daemon/engines/engine_program.h"
#include "daemon/metrics.h"
#include "daemon/nodes/facts.h"
#include "daemon/nodes/link.h"
#include "daemon/nodes/tls.h"
#include "daemon/store/database.h"
#include "daemon/store/store.h"
#include "proto/host/cgroup.h"
#include "proto/host/clock.h"
#include "proto/host/filesystem.h"
#include "proto/host/procfs.h"
#include "proto/protocol.h"
#include "proto/state_files.h"
#include "proto/text.h"
#include "proto/version.h"

enum {
	FOUND_BYTES = 2 * PATH_MAX + 512,
	QUEUE_CHECK_MS = 10000,
	DESCRIPTORS_OF_RANK = 2,     /* its link, and its output */
	DESCRIPTORS_OF_UNKNOWN = 64, /* members that have not sent node.hello: listener.h */
	DESCRIPTORS_OF_FILES = 62,   /* and the other ends while a process is started */
	BUILT_S = 1735689600,        /* 2025: a clock that was ever set is later */
	MEMLOCK_MIB = 64,            /* locked memory that UCX and network cards need at least */
};

static const int64_t ROOM_BYTES = INT64_C(1) << 30; /* the database is small, artifacts are not */
static const int64_t SHM_BYTES = INT64_C(64) << 20; /* of a CUDA rank */
static const int64_t SHM_CPU_BYTES = INT64_C(8) << 20;

struct checks {
	const struct settings *settings;
	const char *errors;
	enum checks_when when;
	const struct check *row;
	struct engine_program program; /* path empty: none was found */
	char state[PATH_MAX];          /* the state directory; empty: it has no path */
	void (*found)(const struct finding *finding, void *arg);
	void *arg;
	int failed;
};

struct check {
	const char *name;
	const char *setting; /* NULL: no setting */
	unsigned when;       /* of enum checks_when, ored */
	void (*run)(struct checks *c);
	const char *advice;
	bool retry;
};

static void add(struct checks *c, enum verdict verdict, int rc, const char *advice,
	const char *format, va_list args) __attribute__((format(printf, 5, 0)));

static void add(struct checks *c, enum verdict verdict, int rc, const char *advice,
	const char *format, va_list args)
{
	char text[FOUND_BYTES];
	struct finding f = {c->row->name, verdict, rc, c->row->setting, c->row->retry, text, NULL};

	vsnprintf(text, sizeof(text), format, args);
	text_shorten(text);
	text_clean(text);
	if (verdict != VERDICT_OK)
		f.advice = advice != NULL ? advice : c->row->advice;
	c->failed += verdict == VERDICT_FAIL;
	c->found(&f, c->arg);
}

static void ok(struct checks *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void ok(struct checks *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(c, VERDICT_OK, 0, NULL, format, args);
	va_end(args);
}

static void warn(struct checks *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn(struct checks *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(c, VERDICT_WARN, 0, NULL, format, args);
	va_end(args);
}

/* advice: NULL for the advice of the row. */
static void fail(struct checks *c, int rc, const char *advice, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void fail(struct checks *c, int rc, const char *advice, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(c, VERDICT_FAIL, rc, advice, format, args);
	va_end(args);
}

/* ---- files and folders ---- */

/* With the rights that gpt2d will have. */
static int may(const char *path, int how)
{
	return faccessat(AT_FDCWD, path, how, AT_EACCESS) < 0 ? -errno : 0;
}

/* Replaces path by its nearest existing folder: path has PATH_MAX bytes. */
static void existing_folder(char *path)
{
	struct stat st;

	while (path[0] != '\0' && lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR) &&
		strrchr(path, '/') != NULL)
		*strrchr(path, '/') = '\0';
	if (path[0] == '\0')
		strcpy(path, "/");
}

/* A setting with an unusable value, with advice by the cause. */
static void refuse(struct checks *c, int rc, const char *error)
{
	const char *setting = c->row->setting;
	char advice[256];

	if (rc == -EROFS)
		snprintf(advice, sizeof(advice), "mount it for writing, or set %s", setting);
	else if (rc == -EACCES)
		snprintf(advice, sizeof(advice), "run gpt2d as the owner, or set %s", setting);
	else if (rc == -ENOENT)
		snprintf(advice, sizeof(advice), "make its folder, or set %s", setting);
	else
		snprintf(advice, sizeof(advice), "set %s to another path", setting);
	fail(c, rc, advice, "%s", error);
}

/* A writable folder that exists, or one that can be created. */
static int try_folder(const char *setting, const char *path, char *error, size_t error_bytes)
{
	char at[PATH_MAX];
	struct stat st;
	int rc;

	snprintf(at, sizeof(at), "%s", path);
	existing_folder(at);
	rc = stat(at, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? may(at, W_OK | X_OK) : -ENOTDIR;
	if (rc == 0)
		return 0;
	if (strcmp(path, at) == 0)
		at[0] = '\0';
	snprintf(error, error_bytes,
		"%s: %s: %s%s%s%s; expected a writable folder, or a path where gpt2d can create "
		"one",
		setting, path, at[0] ? "cannot be created: " : "", at, at[0] ? ": " : "",
		strerror(-rc));
	return rc;
}

/* A writable file that exists, or one that can be created in its folder. */
static int try_file(const char *setting, const char *path, char *error, size_t error_bytes)
{
	char parent[PATH_MAX];
	const char *folder = filesystem_folder(path, parent);
	struct stat st;
	int rc = stat(path, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : may(path, W_OK);

	if (rc != -ENOENT || lstat(path, &st) == 0) {
		if (rc < 0)
			snprintf(error, error_bytes, "%s: %s: %s", setting, path, strerror(-rc));
		return rc;
	}
	rc = may(folder, W_OK | X_OK);
	if (rc < 0)
		snprintf(error, error_bytes, "%s: %s: cannot be created in %s: %s%s", setting, path,
			folder, strerror(-rc),
			rc == -ENOENT ? "; gpt2d does not create that folder" : "");
	return rc;
}

/* ---- settings ---- */

static void check_gpt2d(struct checks *c)
{
	ok(c, "%s (build %s), protocol %d, libevent %s, jansson %s, SQLite %s", VERSION_RELEASE,
		version_build, PROTOCOL_VERSION, event_get_version(), jansson_version_str(),
		sqlite3_libversion());
}

static void check_settings(struct checks *c)
{
	char standard[PATH_MAX] = "none", files[PATH_MAX];

	settings_format_files(c->settings, files, sizeof(files));
	if (c->errors[0] != '\0') {
		fail(c, -EINVAL, NULL, "%.*s", (int)strcspn(c->errors, "\n"), c->errors);
	} else if (files[0]) {
		ok(c, "%s", files);
	} else {
		paths_config(standard, sizeof(standard));
		ok(c, "no file; defaults and options only (%s would be read)", standard);
	}
}

static bool is_path(const char *log_file)
{
	return log_file != NULL && strcmp(log_file, "stderr") != 0 &&
		strcmp(log_file, "journal") != 0;
}

static void check_log(struct checks *c)
{
	const struct settings *s = c->settings;
	char error[FOUND_BYTES];
	int rc = log_check(s->log_file, error, sizeof(error));

	if (rc == 0 && is_path(s->log_file))
		rc = try_file("log_file", s->log_file, error, sizeof(error));
	if (rc < 0)
		refuse(c, rc, error);
	else
		ok(c, "%s", s->log_file ? s->log_file : "standard error");
}

/* none: what is reported if there are no roots; NULL: nothing. */
static void check_roots(struct checks *c, const struct settings_list *roots, int mode,
	const char *consequence, const char *none)
{
	const char *setting = c->row->setting;
	struct stat st;
	bool good = true;

	for (size_t i = 0; i < roots->n; i++) {
		const char *path = roots->path[i];
		int rc = stat(path, &st) < 0  ? -errno
			: S_ISDIR(st.st_mode) ? may(path, mode)
					      : -ENOTDIR;

		if (rc < 0)
			warn(c, "%s: %s: %s: %s", setting, path, strerror(-rc), consequence);
		good = good && rc == 0;
	}
	if (good && (roots->n > 0 || none != NULL))
		ok(c, "%s: %s%s", setting, roots->n > 0 ? roots->path[0] : none,
			roots->n > 1 ? ", ..." : "");
}

static void check_data(struct checks *c)
{
	const struct settings *s = c->settings;

	if ((settings_socket_mode(s) & 0066) != 0 && s->data_roots.n == 0)
		warn(c,
			"data_roots: not set, and users other than gpt2d's may connect: their "
			"runs cannot read files; with data_roots = DIR ... they can read files "
			"below these folders");
	else
		check_roots(c, &s->data_roots, X_OK, "runs cannot read files below it", "anywhere");
}

static void check_checkpoints(struct checks *c)
{
	check_roots(c, &c->settings->checkpoint_roots, W_OK | X_OK,
		"runs write no checkpoints there", NULL);
}

/* A failing write is tried again. */
static void check_metrics(struct checks *c)
{
	const char *path = c->settings->metrics_file;
	char error[FOUND_BYTES], parent[PATH_MAX];
	int rc;

	if (path == NULL) {
		ok(c, "in no file");
		return;
	}
	if (!metrics_path_valid(path)) {
		snprintf(error, sizeof(error),
			"metrics_file: %s: is not a regular file, or its name begins with a dot",
			path);
		refuse(c, -EINVAL, error);
		return;
	}
	rc = may(filesystem_folder(path, parent), W_OK | X_OK);
	if (rc < 0)
		warn(c, "metrics_file: %s: %s: gpt2d retries in each period", path, strerror(-rc));
	else
		ok(c, "%s", path);
}

/* ---- socket and state directory ---- */

static void check_group(struct checks *c)
{
	const struct settings_group *g = &c->settings->socket_group;
	const struct passwd *own;
	char advice[256];

	if (g->name == NULL || geteuid() == 0 || g->gid == getegid() || group_member(g->gid))
		return;
	own = getpwuid(geteuid());
	snprintf(advice, sizeof(advice), "as root: usermod -aG %.64s %.64s; or set socket_group",
		g->name, own != NULL ? own->pw_name : "USER");
	fail(c, -EACCES, advice,
		"socket_group: %s: uid %u is not a member (gid %u), so gpt2d cannot give the "
		"socket to this group (expected a group of that user, or none)",
		g->name, (unsigned)geteuid(), (unsigned)g->gid);
}

static void check_socket(struct checks *c)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], parent[PATH_MAX];
	char error[FOUND_BYTES];
	const char *folder;
	struct stat st;
	int rc = paths_socket(c->settings->socket, path, sizeof(path), error, sizeof(error));

	if (rc == 0) {
		folder = filesystem_folder(path, parent);
		rc = try_folder("socket", folder, error, sizeof(error));
	}
	if (rc == 0 && stat(folder, &st) == 0) {
		rc = place_check_socket(path, error, sizeof(error));
		if (rc == -EEXIST)
			snprintf(error, sizeof(error),
				"socket: %s: exists and is not a socket; remove it, or set socket "
				"to another path",
				path);
	}
	if (rc == -EPERM)
		fail(c, rc, "chmod o-w that folder, or set socket", "%s", error);
	else if (rc == -ENAMETOOLONG)
		fail(c, rc, "set socket to another path (at most 107 bytes)", "%s", error);
	else if (rc < 0)
		refuse(c, rc, error);
	else
		ok(c, "%s (%zu of %zu bytes)", path, strlen(path), sizeof(path) - 1);
}

static void check_state(struct checks *c)
{
	char path[PATH_MAX + 16], error[FOUND_BYTES];
	struct stat st;
	int rc = paths_state_dir(
		c->settings->state_dir, c->state, sizeof(c->state), error, sizeof(error));

	if (rc < 0)
		c->state[0] = '\0';
	else
		rc = try_folder("state_dir", c->state, error, sizeof(error));
	snprintf(path, sizeof(path), "%s/" STATE_RUNS, c->state);
	if (rc == 0)
		rc = try_folder("state_dir", path, error, sizeof(error));
	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, c->state);
	if (rc == 0 && stat(c->state, &st) == 0)
		rc = try_file("state_dir", path, error, sizeof(error));
	if (rc < 0)
		refuse(c, rc, error);
	else if (c->when != CHECKS_ALL)
		ok(c, "%s", c->state);
}

static void check_room(struct checks *c)
{
	char folder[PATH_MAX], system[PATH_MAX];
	struct statvfs fs;
	int64_t room;

	snprintf(folder, sizeof(folder), "%s", c->state);
	existing_folder(folder);
	if (c->state[0] == '\0' || statvfs(folder, &fs) < 0)
		return;
	filesystem_describe(folder, system, sizeof(system));
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (strstr(system, "(nfs") != NULL || strstr(system, "(cifs)") != NULL)
		warn(c,
			"%s on %s: locks and commits are slow over a network, and unsafe on some "
			"servers; set state_dir to a disk of this machine",
			c->state, system);
	else if (room < ROOM_BYTES)
		warn(c, "%s on %s, %" PRId64 " KiB free", c->state, system, room >> 10);
	else
		ok(c, "%s on %s, %" PRId64 " MiB free%s", c->state, system, room >> 20,
			strcmp(c->state, folder) == 0 ? "" : ", does not exist yet");
}

/* The process that holds the lock beside path (0: unknown). -1: none. */
static long holder(const char *path)
{
	char lock[PATH_MAX], text[32] = "";
	long pid = -1;
	int fd;

	if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock))
		return -1;
	fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		pid = read(fd, text, sizeof(text) - 1) > 0 ? atol(text) : 0;
	close(fd);
	return pid;
}

static void check_queue(struct checks *c)
{
	char path[PATH_MAX + 16], error[512];
	struct database_contents contents;
	long pid;
	int rc;

	if (c->state[0] == '\0')
		return;
	snprintf(path, sizeof(path), "%s/" STATE_DATABASE, c->state);
	pid = holder(path);
	rc = database_inspect(path, pid >= 0, QUEUE_CHECK_MS, &contents, error, sizeof(error));
	if (rc == -ENOENT)
		ok(c, "%s does not exist yet", path);
	else if (rc == -EBADMSG)
		fail(c, rc, STORE_DAMAGED_SECTION " says what to do", "%s: %s", path, error);
	else if (rc == -EPROTO)
		fail(c, rc, "install the gpt2d that wrote it, or set state_dir", "%s: %s", path,
			error);
	else if (pid >= 0)
		ok(c, "%s is open in gpt2d, process %ld: gpt2ctl status", path, pid);
	else if (rc < 0)
		fail(c, rc, NULL, "%s: %s", path, error);
	else
		ok(c, "%s: %" PRId64 " runs, schema %d, %s", path, contents.runs, contents.schema,
			contents.complete ? "no damage found" : "too large for a complete check");
}

/* ---- the engine ---- */

static void find_program(struct checks *c)
{
	struct engine_program *p = &c->program;
	char error[FOUND_BYTES];
	int rc = engine_program_find(c->settings, p, error, sizeof(error));

	if (rc < 0) {
		p->path[0] = '\0';
		if (rc == -ENODEV && c->when == CHECKS_TEST) /* a GPU may come later */
			warn(c, "%s", error);
		else
			fail(c, rc, NULL, "%s", error);
		return;
	}
	ok(c, "%s%s%s%s, %s", engine_program_device_name(p->device), p->why[0] ? " (auto: " : "",
		p->why, p->why[0] ? ")" : "", p->path);
}

static void check_device(struct checks *c)
{
	if (c->settings->engine == NULL)
		find_program(c);
}

static void check_program(struct checks *c)
{
	if (c->settings->engine != NULL)
		find_program(c);
}

static void check_engine(struct checks *c)
{
	char text[640];
	int rc;

	if (c->program.path[0] == '\0')
		return;
	rc = engine_probe(c->program.path, c->settings->ranks, settings_interface(c->settings),
		c->settings->check_timeout_s, text, sizeof(text));
	if (rc < 0)
		fail(c, rc, NULL, "%s", text);
	else
		ok(c, "%s", text);
}

/*
 * Checks the libraries of the CUDA engine even if gpt2d is configured for processors, because GPUs
 * may lack them.
 */
static void check_libraries(struct checks *c)
{
	char cuda[PATH_MAX], why[PATH_MAX], missing[1024];
	const bool taken = c->program.device == DEVICE_CUDA;

	if (c->program.path[0] != '\0' &&
		engine_probe_libraries(c->program.path, missing, sizeof(missing)) > 0)
		fail(c, -ELIBACC, NULL, "%s lacks %s", c->program.path, missing);
	else if (!taken &&
		engine_program_beside("cuda", cuda, sizeof(cuda), why, sizeof(why)) == 0 &&
		engine_probe_libraries(cuda, missing, sizeof(missing)) > 0)
		warn(c, "%s lacks %s", cuda, missing);
	else
		ok(c, "all are there");
}

/* ---- the machine ---- */

static void check_processors(struct checks *c)
{
	const struct settings *s = c->settings;
	const int usable = cgroup_processors("");
	struct utsname os;

	if (uname(&os) < 0)
		return;
	if (c->program.device != DEVICE_CUDA && s->ranks > usable)
		warn(c, "%d to use, %" PRId64 " ranks; Linux %s", usable, s->ranks, os.release);
	else
		ok(c, "%d to use, %ld on; Linux %s %s", usable, sysconf(_SC_NPROCESSORS_ONLN),
			os.release, os.machine);
}

static void check_proc(struct checks *c)
{
	char why[160];

	if (procfs_check(why, sizeof(why)) == 0)
		ok(c, "of this pid namespace");
	else if (c->settings->ranks > 1 && c->when == CHECKS_ALL)
		fail(c, -ENOENT, NULL, "%s", why);
	else
		warn(c, "%s", why);
}

static void check_shm(struct checks *c)
{
	const int64_t ranks = c->settings->ranks;
	const int64_t each = c->program.device == DEVICE_CUDA ? SHM_BYTES : SHM_CPU_BYTES;
	struct statvfs fs;
	int64_t size, room;

	if (statvfs("/dev/shm", &fs) < 0 || access("/dev/shm", W_OK | X_OK) < 0) {
		if (ranks > 1)
			fail(c, -errno, NULL, "%s", strerror(errno));
		else
			warn(c, "%s", strerror(errno));
		return;
	}
	size = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
	room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
	if (ranks > 1 && room < each * ranks)
		warn(c,
			"%" PRId64 " MiB, %" PRId64 " MiB free, %" PRId64 " MiB needed for %" PRId64
			" ranks",
			size >> 20, room >> 20, each * ranks >> 20, ranks);
	else
		ok(c, "%" PRId64 " MiB, %" PRId64 " MiB free", size >> 20, room >> 20);
}

/* ---- limits of the process ---- */

static const int raised[] = {RLIMIT_NOFILE, RLIMIT_CPU, RLIMIT_FSIZE};

void checks_raise_limits(void)
{
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++) {
		if (getrlimit(raised[i], &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(raised[i], &limit);
	}
}

static const char *limit_text(rlim_t limit, char out[32])
{
	if (limit == RLIM_INFINITY)
		return "no limit";
	snprintf(out, 32, "%llu", (unsigned long long)limit);
	return out;
}

/* Of engines, files, the link to members, and clients. */
static void check_descriptors(struct checks *c)
{
	const struct settings *s = c->settings;
	const bool leads = settings_part(s) == SETTINGS_LEADER;
	const int64_t needed = DESCRIPTORS_OF_FILES + s->ranks * DESCRIPTORS_OF_RANK +
		(leads ? s->nodes + DESCRIPTORS_OF_UNKNOWN : 0) + s->clients_max;
	struct rlimit limit;
	char text[32];

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit_text(limit.rlim_max, text);
	if (limit.rlim_max < (rlim_t)needed)
		fail(c, -EMFILE, NULL,
			"%s descriptors, %" PRId64 " needed (%" PRId64 " clients, %" PRId64
			" rank%s, files)",
			text, needed, s->clients_max, s->ranks, s->ranks == 1 ? "" : "s");
	else
		ok(c, "%s, %" PRId64 " needed", text, needed);
}

static void check_memlock(struct checks *c)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return;
	if (limit.rlim_max == RLIM_INFINITY)
		ok(c, "no limit");
	else if (c->program.device == DEVICE_CUDA && limit.rlim_max >> 20 < MEMLOCK_MIB)
		warn(c, "%llu KiB: too little to lock for transfers between nodes",
			(unsigned long long)limit.rlim_max >> 10);
	else
		ok(c, "%llu KiB", (unsigned long long)limit.rlim_max >> 10);
}

/* ---- several nodes ---- */

static void check_key(struct checks *c)
{
	const struct settings *s = c->settings;
	char error[FOUND_BYTES];

	if (settings_part(s) == SETTINGS_ALONE || s->key_file == NULL)
		return;
	if (tls_check_key(s->key_file, error, sizeof(error)) < 0)
		fail(c, -EINVAL, NULL, "%s", error);
	else
		ok(c, "%s", s->key_file);
}

static void check_interface(struct checks *c)
{
	const char *name = settings_interface(c->settings);
	struct sockaddr_storage address;
	char error[FOUND_BYTES], text[LINK_NAME_BYTES];

	if (name == NULL)
		return;
	if (facts_interface_address(name, &address, error, sizeof(error)) < 0) {
		fail(c, -EADDRNOTAVAIL, NULL, "%s", error);
		return;
	}
	link_format_address((struct sockaddr *)&address, text);
	ok(c, "%s, %.*s", name, (int)strcspn(text, "]:"), text);
}

/* ---- GPUs, clock ---- */

static void check_gpus(struct checks *c)
{
	char line[256] = "";
	FILE *f = fopen("/proc/driver/nvidia/version", "re");
	const bool driver = f != NULL && fgets(line, sizeof(line), f) != NULL;
	glob_t found = {0};
	size_t n = 0;

	if (f != NULL)
		fclose(f);
	line[strcspn(line, "\n")] = '\0';
	if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0)
		n = found.gl_pathc;
	if (c->program.device == DEVICE_CUDA && n > 0 && (size_t)c->settings->ranks > n)
		fail(c, -EINVAL, "set ranks to the number of GPUs",
			"%" PRId64 " ranks need one GPU each, found %zu", c->settings->ranks, n);
	else if (n > 0 && access(found.gl_pathv[0], R_OK | W_OK) < 0)
		warn(c, "%s: %s", found.gl_pathv[0], strerror(errno));
	else if (n == 0 && driver)
		warn(c, "%s, but no /dev/nvidia0", line);
	else if (n > 0 && c->program.device == DEVICE_CPU)
		warn(c, "%zu GPUs are not used: device is cpu", n);
	else
		ok(c, "%zu device%s; %s", n, n == 1 ? "" : "s", driver ? line : "no NVIDIA driver");
	globfree(&found);
}

static void check_clock(struct checks *c)
{
	const int64_t utc_ns = clock_utc_ns();
	char at[CLOCK_TEXT_BYTES];

	clock_text_s(utc_ns, at);
	if (utc_ns / CLOCK_S_NS < BUILT_S)
		warn(c, "%s: the times of runs would be wrong", at);
	else
		ok(c, "%s", at);
}

/* ---- the table ---- */

enum { EVER = CHECKS_TEST | CHECKS_START | CHECKS_ALL, ALL = CHECKS_ALL, START = CHECKS_START };

/*
 * In the order in which they are run and printed. device and state come before those that depend on
 * them.
 */
static const struct check table[] = {
	{"gpt2d", NULL, ALL, check_gpt2d, NULL, false},
	{"settings", NULL, ALL, check_settings,
		"gpt2d -n prints all errors; the further checks use the defaults", false},
	{"clock", NULL, ALL | START, check_clock, "set the clock, and start gpt2d again", false},
	{"device", "device", ALL | CHECKS_TEST, check_device,
		"see device and engine in gpt2d.conf(5)", false},
	{"device", "engine", ALL | CHECKS_TEST, check_program,
		"see device and engine in gpt2d.conf(5)", false},
	{"libraries", NULL, ALL, check_libraries,
		"install them, those of CUDA from NVIDIA's repository; see GPUS in gpt2d(8)",
		false},
	{"engine", NULL, ALL, check_engine,
		"run it with --version; its errors are above, on standard error", false},
	{"log", "log_file", EVER, check_log, "set log_file", false},
	{"checkpoints", "checkpoint_roots", EVER, check_checkpoints,
		"chown gpt2d, or see AS A SERVICE in gpt2d(8) if the folder is read-only for the "
		"service",
		false},
	{"metrics", "metrics_file", EVER, check_metrics, "see metrics_file in gpt2d.conf(5)",
		false},
	{"data", "data_roots", EVER, check_data, "see data_roots in gpt2d.conf(5)", false},
	{"state", "state_dir", EVER, check_state, "set state_dir", true},
	{"group", "socket_group", EVER, check_group, NULL, false},
	{"socket", "socket", EVER, check_socket, "set socket", true},
	{"disk", "state_dir", ALL, check_room, "gpt2ctl prune, or set state_dir", false},
	{"queue", "state_dir", ALL, check_queue, "see gpt2d.db in gpt2d(8), or set state_dir",
		false},
	{"key", "key_file", EVER, check_key, "see SEVERAL NODES in gpt2d(8)", false},
	{"interface", "interface", ALL | START, check_interface,
		"set interface to the network that connects the nodes", true},
	{"processors", "ranks", ALL, check_processors,
		"fewer ranks: each has less than one processor", false},
	{"/proc", NULL, ALL | START, check_proc,
		"mount -t proc proc /proc, in the pid namespace of gpt2d: ranks reach each other "
		"through it",
		true},
	{"/dev/shm", NULL, ALL, check_shm,
		"a larger tmpfs there with mode 1777 (docker run --shm-size): ranks exchange data "
		"through it",
		false},
	{"nofile", NULL, ALL | START, check_descriptors,
		"raise the limit (LimitNOFILE= of the unit, ulimit -Hn), or lower clients", true},
	{"memlock", NULL, ALL, check_memlock,
		"raise it (LimitMEMLOCK=infinity of the unit, ulimit -l)", false},
	{"GPUs", NULL, ALL, check_gpus,
		"to train on GPUs: device = cuda, the package gpt2d-cuda, and the devices for "
		"gpt2d (group video or render, docker run --gpus)",
		false},
};

int checks_run(enum checks_when when, const struct settings *s, const char *errors,
	void (*found)(const struct finding *finding, void *arg), void *arg)
{
	struct checks c = {
		.settings = s, .errors = errors, .when = when, .found = found, .arg = arg};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		c.row = &table[i];
		if ((c.row->when & when) != 0)
			c.row->run(&c);
	}
	return c.failed;
}

static const char *const verdict_names[] = {"ok", "warn", "fail"};

static void print_finding(const struct finding *f, void *arg)
{
	fprintf(arg, "%-4s  %-10s  %s%s%s\n", verdict_names[f->verdict], f->check, f->text,
		f->advice ? "; " : "", f->advice ? f->advice : "");
}

static void collect_finding(const struct finding *f, void *arg)
{
	json_array_append_new(arg,
		json_pack("{ss ss ss ss?}", "check", f->check, "verdict", verdict_names[f->verdict],
			"found", f->text, "advice", f->advice));
}

int checks_print(const struct settings *s, const char *errors, bool json, FILE *out)
{
	json_t *all, *array;
	int failed;

	if (!json)
		return checks_run(CHECKS_ALL, s, errors, print_finding, out);
	array = json_array();
	failed = checks_run(CHECKS_ALL, s, errors, collect_finding, array);
	all = json_pack("{ss ss sb so}", "version", VERSION_RELEASE, "build", version_build, "ok",
		failed == 0, "checks", array);
	json_dumpf(all, out, JSON_INDENT(2));
	fputc('\n', out);
	json_decref(all);
	return failed;
}

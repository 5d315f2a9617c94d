/* The table of settings. */
#include "daemon/config/log.h"
#include "daemon/config/settings.h"
#include "proto/protocol.h"

#define AT(member)                .offset = offsetof(struct settings, member)
#define RANGE(least, most, usual) .min = (least), .max = (most), .standard = (usual)

enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S };

const struct settings_row settings_rows[] = {
	{"socket", SETTING_PATH, AT(socket),
		.unset = "gpt2d/gpt2d.sock below $XDG_RUNTIME_DIR; for root and services "
			 "/run/gpt2d/gpt2d.sock",
		.help = "the control socket; $GPT2D_SOCKET overrides the file",
		.manual = "Clients find it by the same rules.\n"
			  "gpt2d creates its folder if it does not exist; only users of the socket "
			  "may enter that folder.\n"},
	{"socket_group", SETTING_GROUP, AT(socket_group), .unset = "the group gpt2d runs with",
		.help = "the group the socket belongs to",
		.manual = "gpt2d must run as a member of it, or as root.\n"
			  "Its members share the GPUs: see\n"
			  ".Sx USERS\n"
			  "in\n"
			  ".Xr gpt2d 8 .\n"},
	{"socket_mode", SETTING_MODE, AT(socket_mode), RANGE(0600, 0777, -1),
		.unset = "0600, with socket_group 0660",
		.help = "who may connect: the owner, the group, all",
		.manual = "See\n"
			  ".Cm admin_group\n"
			  "for what a connected client may do.\n"},
	{"admin_group", SETTING_GROUP, AT(admin_group),
		.unset = "only root and the user gpt2d runs as",
		.help = "its members may cancel the runs of others, and shut gpt2d down",
		.manual = "gpt2d reads the groups of a client when it connects.\n"},
	{"state_dir", SETTING_PATH, AT(state_dir),
		.unset = "gpt2d below $XDG_STATE_HOME or ~/.local/state; for root and services "
			 "/var/lib/gpt2d",
		.help = "queue, runs and artifacts"},
	{"device", SETTING_WORD, AT(device), RANGE(DEVICE_CPU, DEVICE_AUTO, DEVICE_UNSET),
		.words = {NULL, "cpu", "cuda", "auto"},
		.unset = "auto for a user's own daemon, cpu for root and services",
		.help = "the device that trains",
		.manual = ".Cm cuda\n"
			  "uses the GPUs of this machine, one per rank.\n"
			  "gpt2d does not start if there is no GPU or if\n"
			  ".Pa gpt2-engine-cuda\n"
			  "is not installed.\n"
			  ".Cm auto\n"
			  "uses the GPUs if both exist, else the processors.\n"
			  "The log and\n"
			  ".Ic gpt2ctl status\n"
			  "say which device it chose and why.\n"
			  ".Cm auto\n"
			  "is for a user's own daemon only.\n"},
	{"engine", SETTING_PATH, AT(engine),
		.unset = "gpt2-engine-cpu or gpt2-engine-cuda beside gpt2d, else in "
			 "../libexec/gpt2d",
		.help = "the engine program, if it is not the installed one"},
	{"ranks", SETTING_COUNT, AT(ranks), RANGE(1, 1024, 1),
		.help = "engine processes, the largest world of a run",
		.manual = "A queued run that needs more ranks waits until gpt2d has as many "
			  "again.\n"},
	{"threads", SETTING_COUNT, AT(threads), RANGE(0, PROTOCOL_THREADS_MAX, 0),
		.help = "computing threads of each rank; 0: processors / ranks, at least 1",
		.manual = "The processors are those of gpt2d's affinity and of the limit\n"
			  ".Pa cpu.max\n"
			  "of its control group.\n"},
	{"peak_tflops", SETTING_COUNT, AT(peak_tflops), RANGE(0, 1000000, 0),
		.help = "peak TFLOP/s of a device, for MFU and HFU; 0: the peak of a known card",
		.manual =
			"gpt2d knows the dense peak in 16 bits of H100 and H200 (989), A100 (312), "
			"V100 (125) and T4 (65).\n"
			"The figures of any other device are null unless this is set.\n"},
	{"data_roots", SETTING_LIST, AT(data_roots),
		.unset = "anywhere for root and the user gpt2d runs as, nowhere for others",
		.help = "folders below which runs may read data",
		.manual = "gpt2d follows the links of a path.\n"
			  "The file must be below one of these "
			  "folders when the engine opens it.\n"
			  "Links may lead from one folder into another.\n"
			  "A path that leads outside and a path that leads to no file get the "
			  "same error.\n"
			  "If other users may connect\n"
			  ".Pq Cm socket_mode , socket_group ,\n"
			  "their runs cannot read files until this is set, because engines read "
			  "with the rights of gpt2d.\n"
			  ".Ql data_roots = /\n"
			  "allows every file that gpt2d may read.\n"},
	{"checkpoint_roots", SETTING_LIST, AT(checkpoint_roots),
		.unset = "anywhere for root and the user gpt2d runs as, nowhere for others",
		.help = "folders below which runs may write checkpoints",
		.manual = "This applies to the spec key\n"
			  ".Ic checkpoint.dir .\n"
			  "Without that key a run writes its checkpoints in its own folder.\n"
			  "The user gpt2d runs as must be able to write to these folders.\n"
			  "A service cannot write below /home, /usr, /boot and /etc.\n"
			  "AS A SERVICE in\n"
			  ".Xr gpt2d 8\n"
			  "explains how to change that.\n"},
	{"log_file", SETTING_PATH, AT(log_file),
		.unset = "standard error, which is the journal under systemd",
		.help = "log file, appended to; or the word stderr, or journal",
		.manual =
			"Its folder must exist.\n"
			"gpt2d opens the file again on\n"
			".Dv SIGHUP .\n"
			".Cm journal\n"
			"is the journal of\n"
			".Xr systemd 1 .\n"
			"gpt2d refuses a FIFO or a socket.\n"
			"gpt2d does not wait for a stopped terminal, a pipe without a reader, or\n"
			"a disk that does not answer: it keeps up to 4 MiB of lines, drops\n"
			"further lines, and logs how many.\n"},
	{"log_level", SETTING_WORD, AT(log_level), RANGE(LOG_DEBUG, LOG_ERROR, LOG_INFO),
		.words = {"debug", "info", "warning", "error"}, .reload = true,
		.help = "the lowest level that is logged; a failed run is a warning"},
	{"start_timeout", SETTING_SECONDS, AT(start_timeout_s), RANGE(1, DAY_S, 120),
		.help = "gpt2d restarts engines that are not ready by then"},
	{"alive_timeout", SETTING_SECONDS, AT(alive_timeout_s), RANGE(2, DAY_S, 15),
		.help = "gpt2d considers an engine hung if it is silent for this long"},
	{"progress_timeout", SETTING_SECONDS, AT(progress_timeout_s), RANGE(1, 7 * DAY_S, 600),
		.reload = true,
		.help = "gpt2d considers a segment hung if it reports no step for this long",
		.manual = "The same applies to the disk if the files of a trained segment are "
			  "not written.\n"},
	{"cancel_timeout", SETTING_SECONDS, AT(cancel_timeout_s), RANGE(1, DAY_S, 30),
		.reload = true,
		.help = "gpt2d kills engines that do not stop a segment in this time"},
	{"stop_timeout", SETTING_SECONDS, AT(stop_timeout_s), RANGE(0, DAY_S, 0), .reload = true,
		.help = "time that SIGTERM and SIGINT give the run in progress; 0: none",
		.manual = "No other run starts during this time.\n"
			  "A second signal ends it.\n"
			  "A service manager must wait 20 s longer than this.\n"},
	{"check_timeout", SETTING_SECONDS, AT(check_timeout_s), RANGE(1, DAY_S, 120),
		.help = "time for the check of one arm of a spec",
		.manual = "One process does all checks.\n"
			  "It reads large token files in parts of "
			  "256 MiB; the time of other checks in between does not count.\n"
			  "A file on a disk that does not answer, such as a lost file server, "
			  "delays other submissions by at most this time.\n"},
	{"idle_release", SETTING_SECONDS, AT(idle_release_s), RANGE(0, 365 * DAY_S, 0),
		.reload = true,
		.help = "gpt2d releases engines that had no run for this long; 0: never",
		.manual = "They start again for the next run, or with\n"
			  ".Ic gpt2ctl warm .\n"},
	{"clients", SETTING_COUNT, AT(clients_max), RANGE(1, 65536, 512), .reload = true,
		.help = "clients at once"},
	{"clients_per_user", SETTING_COUNT, AT(clients_per_uid), RANGE(1, 65536, 128),
		.reload = true, .help = "clients of one user at once"},
	{"client_idle", SETTING_SECONDS, AT(client_idle_s), RANGE(1, DAY_S, 30), .reload = true,
		.help = "gpt2d closes a client idle for this long if another needs its place",
		.manual = "The client gets an error that says so.\n"
			  "gpt2d keeps clients that follow a run or wait for a reply.\n"
			  "It always closes a client that sends no hello for that long, and one "
			  "that reads nothing for that long while more than\n"
			  ".Ic client_buffer\n"
			  "waits for it.\n"},
	{"client_buffer", SETTING_BYTES, AT(client_buffer_bytes),
		RANGE(4096, INT64_C(1) << 30, 1 << 20),
		.help = "output held for a client before it loses events",
		.manual = "While more waits to be read, gpt2d takes no further request of the "
			  "client.\n"},
	{"retain_runs", SETTING_COUNT, AT(retain_runs), RANGE(0, 1000000000, 0), .reload = true,
		.help = "ended runs that stay, the newest; 0: all",
		.manual = "gpt2d removes older ones and their files when no run is in progress, or "
			  "after every 32 runs that ended.\n"
			  "A new value takes effect within a minute.\n"
			  "Runs protected with\n"
			  ".Ic gpt2ctl keep\n"
			  "stay and do not count.\n"
			  "A run without a folder stays, too.\n"},
	{"retain_days", SETTING_COUNT, AT(retain_days), RANGE(0, 36500, 0), .reload = true,
		.help = "days for which ended runs stay; 0: for ever",
		.manual = "As with\n"
			  ".Cm retain_runs ;\n"
			  "if both are set, gpt2d removes a run that exceeds either.\n"
			  "All runs look old after the clock has jumped ahead.\n"
			  "gpt2d therefore "
			  "removes no run for its age for 24 hours, or until the clock is right "
			  "again, if the clock is more than an hour ahead of the time that has "
			  "passed (time suspended counts as passed), or if gpt2d starts more than "
			  "30 days after the last change of a run.\n"
			  "The log says so.\n"
			  "To remove old runs at once:\n"
			  ".Ic gpt2ctl prune --older-than .\n"},
	{"metrics_file", SETTING_PATH, AT(metrics_file), .unset = "none",
		.help = "a file of figures for a monitoring system, in Prometheus text format",
		.manual = "The figures are those of\n"
			  ".Ic gpt2ctl metrics .\n"
			  "The textfile collector of node_exporter reads\n"
			  ".Pa .prom\n"
			  "files.\n"
			  "Every user may read the file.\n"
			  ".Nm gpt2d\n"
			  "replaces a file that is there.\n"
			  "The file is removed when gpt2d ends in good order.\n"},
	{"metrics_period", SETTING_SECONDS, AT(metrics_period_s), RANGE(1, HOUR_S, 15),
		.reload = true, .help = "time between two writes of metrics_file"},
	{"listen", SETTING_TEXT, AT(listen), .unset = "none: gpt2d trains on this node alone",
		.help = "ADDR:PORT on which the leader of several nodes waits for the members",
		.manual = "ADDR is an IP address of this node, in brackets if it has colons; "
			  "empty: the address "
			  "of\n"
			  ".Cm link_interface .\n"
			  "With port 0 gpt2d chooses a free port;\n"
			  ".Pa listening\n"
			  "in the state directory and\n"
			  ".Ic gpt2ctl status\n"
			  "show it.\n"
			  "See\n"
			  ".Sx SEVERAL NODES\n"
			  "in\n"
			  ".Xr gpt2d 8 .\n"},
	{"nodes", SETTING_COUNT, AT(nodes), RANGE(1, 1024, 1),
		.help = "nodes of the world, the leader included",
		.manual = "Each node has the same number of\n"
			  ".Cm ranks .\n"
			  "Without this setting the leader uses SLURM_JOB_NUM_NODES.\n"},
	{"join", SETTING_TEXT, AT(join), .unset = "none: gpt2d is not a member",
		.help = "HOST:PORT of the leader that this member joins",
		.manual = "If\n"
			  ".Cm listen\n"
			  "is set too, the node with ID 0 listens and the others join, so that all "
			  "nodes can have the same settings.\n"},
	{"node_id", SETTING_COUNT, AT(node_id), RANGE(0, 1023, -1),
		.unset = "SLURM_NODEID with listen or join; else 0",
		.help = "this node's ID: 0 for the leader, 1 to nodes - 1 for a member"},
	{"key_file", SETTING_PATH, AT(key_file), .unset = "none; needed with listen or join",
		.help = "the key that all nodes share: at least 32 random bytes, mode 0600",
		.manual = "Make one with\n"
			  ".Ql head -c 32 /dev/urandom ,\n"
			  "and copy it to every node.\n"},
	{"cluster", SETTING_TEXT, AT(cluster), .unset = SETTINGS_CLUSTER,
		.help = "a name that all nodes share; nodes of another cluster are refused"},
	{"node_timeout", SETTING_SECONDS, AT(node_timeout_s), RANGE(2, HOUR_S, 8),
		.help = "a node that sent no heartbeat for this long is lost"},
	{"interface", SETTING_TEXT, AT(interface), .unset = "link_interface",
		.help = "the network interface of UCX and NCCL between nodes"},
	{"link_interface", SETTING_TEXT, AT(link_interface), .unset = "any",
		.help = "the network interface of the link between the daemons",
		.manual = "The leader listens on its address, a member connects from it.\n"},
};

const size_t settings_n_rows = sizeof(settings_rows) / sizeof(settings_rows[0]);

_Static_assert(sizeof(settings_rows) / sizeof(settings_rows[0]) <= SETTINGS_ROWS_MAX,
	"SETTINGS_ROWS_MAX is as large as the table");

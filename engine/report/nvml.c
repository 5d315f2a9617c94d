#include "engine/report/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/host/memory.h"

static const char driver_library[] = "libnvidia-ml.so.1";

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0, PROCESSES_MAX = 64, SUCCESS = 0 };
enum { NVLINKS_MAX = 18, ENABLED = 1, P2P_NVLINK = 2, P2P_OK = 0 };

typedef void *device_t;

struct utilization {
	unsigned int gpu, memory;
};

/* used: in the first version includes the driver's own memory, which nvidia-smi excludes. */
struct memory {
	unsigned long long total, free, used;
};
struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};
static const unsigned int memory_v2_version = sizeof(struct memory_v2) | 2 << 24;

struct process {
	unsigned int pid;
	unsigned long long used_bytes;
	unsigned int gpu_instance, compute_instance;
};

struct pci_info {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

struct functions {
	int (*init)(void);
	int (*shutdown)(void);
	int (*device_by_pci)(const char *pci, device_t *out);
	/* the following may be missing: then the value is not known */
	int (*driver)(char *out, unsigned int bytes);
	int (*name)(device_t d, char *out, unsigned int bytes);
	int (*uuid)(device_t d, char *out, unsigned int bytes);
	int (*index)(device_t d, unsigned int *out);
	int (*clock)(device_t d, int which, unsigned int *mhz);
	int (*throttle)(device_t d, unsigned long long *reasons);
	int (*temperature)(device_t d, int sensor, unsigned int *celsius);
	int (*power)(device_t d, unsigned int *mw);
	int (*energy)(device_t d, unsigned long long *mj);
	int (*utilization)(device_t d, struct utilization *out);
	int (*memory)(device_t d, struct memory *out);
	int (*memory_v2)(device_t d, struct memory_v2 *out);
	int (*processes)(device_t d, unsigned int *n, struct process *out);
	int (*count)(unsigned int *out);
	int (*device_by_index)(unsigned int index, device_t *out);
	int (*pci)(device_t d, struct pci_info *out);
	int (*ancestor)(device_t a, device_t b, int *level);
	int (*link_state)(device_t d, unsigned int link, int *enabled);
	int (*link_peer)(device_t d, unsigned int link, struct pci_info *out);
	int (*p2p)(device_t a, device_t b, int which, int *status);
};

static const struct {
	const char *symbol;
	size_t at;
	bool needed;
} symbols[] = {
	{"nvmlInit_v2", offsetof(struct functions, init), true},
	{"nvmlShutdown", offsetof(struct functions, shutdown), true},
	{"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct functions, device_by_pci), true},
	{"nvmlSystemGetDriverVersion", offsetof(struct functions, driver), false},
	{"nvmlDeviceGetName", offsetof(struct functions, name), false},
	{"nvmlDeviceGetUUID", offsetof(struct functions, uuid), false},
	{"nvmlDeviceGetIndex", offsetof(struct functions, index), false},
	{"nvmlDeviceGetClockInfo", offsetof(struct functions, clock), false},
	{"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct functions, throttle), false},
	{"nvmlDeviceGetTemperature", offsetof(struct functions, temperature), false},
	{"nvmlDeviceGetPowerUsage", offsetof(struct functions, power), false},
	{"nvmlDeviceGetTotalEnergyConsumption", offsetof(struct functions, energy), false},
	{"nvmlDeviceGetUtilizationRates", offsetof(struct functions, utilization), false},
	{"nvmlDeviceGetMemoryInfo", offsetof(struct functions, memory), false},
	{"nvmlDeviceGetMemoryInfo_v2", offsetof(struct functions, memory_v2), false},
	{"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct functions, processes), false},
	{"nvmlDeviceGetCount_v2", offsetof(struct functions, count), false},
	{"nvmlDeviceGetHandleByIndex_v2", offsetof(struct functions, device_by_index), false},
	{"nvmlDeviceGetPciInfo_v3", offsetof(struct functions, pci), false},
	{"nvmlDeviceGetTopologyCommonAncestor", offsetof(struct functions, ancestor), false},
	{"nvmlDeviceGetNvLinkState", offsetof(struct functions, link_state), false},
	{"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct functions, link_peer), false},
	{"nvmlDeviceGetP2PStatus", offsetof(struct functions, p2p), false},
};

struct nvml {
	void *library;
	struct functions f;
	device_t handle;
	struct nvml_device device;
};

static int load(struct nvml *n, const char *library, char *error, size_t error_bytes)
{
	const char *file = library ? library : driver_library;

	n->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!n->library) {
		snprintf(error, error_bytes, "nvml: %s", dlerror());
		return -ELIBACC;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *address = dlsym(n->library, symbols[i].symbol);

		if (!address && symbols[i].needed) {
			snprintf(error, error_bytes, "nvml: %s has no %s", file, symbols[i].symbol);
			return -ELIBACC;
		}
		memcpy((char *)&n->f + symbols[i].at, &address, sizeof(address));
	}
	return 0;
}

static void describe(struct nvml *n)
{
	struct nvml_device *d = &n->device;
	unsigned int index;

	d->index = -1;
	if (n->f.driver && n->f.driver(d->driver, sizeof(d->driver)) != SUCCESS)
		d->driver[0] = '\0';
	if (n->f.name && n->f.name(n->handle, d->name, sizeof(d->name)) != SUCCESS)
		d->name[0] = '\0';
	if (n->f.uuid && n->f.uuid(n->handle, d->uuid, sizeof(d->uuid)) != SUCCESS)
		d->uuid[0] = '\0';
	if (n->f.index && n->f.index(n->handle, &index) == SUCCESS)
		d->index = index;
}

int nvml_open(
	const char *library, const char *pci, struct nvml **out, char *error, size_t error_bytes)
{
	struct nvml *n = memory_zeroed(1, sizeof(*n));
	int rc, status;

	rc = load(n, library, error, error_bytes);
	if (rc)
		goto fail;
	status = n->f.init();
	if (status != SUCCESS) {
		snprintf(error, error_bytes, "nvml: initialisation failed: code %d", status);
		rc = -EIO;
		goto fail;
	}
	status = n->f.device_by_pci(pci, &n->handle);
	if (status != SUCCESS) {
		snprintf(error, error_bytes, "nvml: no device %s: code %d", pci, status);
		n->f.shutdown();
		rc = -ENODEV;
		goto fail;
	}
	describe(n);
	*out = n;
	return 0;

fail:
	if (n->library)
		dlclose(n->library);
	free(n);
	return rc;
}

void nvml_close(struct nvml *n)
{
	if (!n)
		return;
	n->f.shutdown();
	dlclose(n->library);
	free(n);
}

const struct nvml_device *nvml_device(const struct nvml *n)
{
	return &n->device;
}

static pid_t parent_of(unsigned int pid)
{
	char path[64], line[256];
	int parent = -1;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%u/status", pid);
	status = fopen(path, "re");
	if (!status)
		return -1;
	while (parent < 0 && fgets(line, sizeof(line), status))
		if (sscanf(line, "PPid: %d", &parent) != 1)
			parent = -1;
	fclose(status);
	return parent;
}

/* The driver reports ~0 if it does not know. */
static void note_other(const struct process *p, bool first, struct nvml_sample *out)
{
	int64_t bytes = p->used_bytes > INT64_MAX ? -1 : (int64_t)p->used_bytes;

	if (first || bytes > out->other_bytes) {
		out->other_pid = p->pid;
		out->other_bytes = bytes;
	}
}

static void count_others(const struct nvml *n, struct nvml_sample *out)
{
	struct process list[PROCESSES_MAX];
	unsigned int count = PROCESSES_MAX;
	int64_t others = 0;
	bool seen = false;

	if (!n->f.processes || n->f.processes(n->handle, &count, list) != SUCCESS)
		return;
	for (unsigned int i = 0; i < count && i < PROCESSES_MAX; i++) {
		if ((pid_t)list[i].pid == getpid())
			seen = true;
		else if (parent_of(list[i].pid) != getppid())
			note_other(&list[i], others++ == 0, out);
	}
	if (seen)
		out->others = others;
}

static int64_t clock_of(const struct nvml *n, int which)
{
	unsigned int mhz;

	return n->f.clock && n->f.clock(n->handle, which, &mhz) == SUCCESS ? (int64_t)mhz : -1;
}

static void read_memory(const struct nvml *n, struct nvml_sample *out)
{
	struct memory_v2 newer = {.version = memory_v2_version};
	struct memory older;

	if (n->f.memory_v2 && n->f.memory_v2(n->handle, &newer) == SUCCESS) {
		out->used_bytes = (int64_t)newer.used;
		out->total_bytes = (int64_t)newer.total;
	} else if (n->f.memory && n->f.memory(n->handle, &older) == SUCCESS) {
		out->used_bytes = (int64_t)older.used;
		out->total_bytes = (int64_t)older.total;
	}
}

int64_t nvml_energy_mj(const struct nvml *n)
{
	unsigned long long mj;

	return n->f.energy && n->f.energy(n->handle, &mj) == SUCCESS ? (int64_t)mj : -1;
}

void nvml_read(const struct nvml *n, struct nvml_sample *out)
{
	struct utilization busy;
	unsigned long long reasons;
	unsigned int value;

	*out = (struct nvml_sample){
		.sm_mhz = clock_of(n, CLOCK_SM),
		.memory_mhz = clock_of(n, CLOCK_MEMORY),
		.throttle = -1,
		.temperature_c = -1,
		.power_mw = -1,
		.gpu_percent = -1,
		.memory_percent = -1,
		.used_bytes = -1,
		.total_bytes = -1,
		.others = -1,
		.other_pid = -1,
		.other_bytes = -1,
	};
	count_others(n, out);
	if (n->f.throttle && n->f.throttle(n->handle, &reasons) == SUCCESS)
		out->throttle = (int64_t)reasons;
	if (n->f.temperature && n->f.temperature(n->handle, TEMPERATURE_GPU, &value) == SUCCESS)
		out->temperature_c = value;
	if (n->f.power && n->f.power(n->handle, &value) == SUCCESS)
		out->power_mw = value;
	if (n->f.utilization && n->f.utilization(n->handle, &busy) == SUCCESS) {
		out->gpu_percent = busy.gpu;
		out->memory_percent = busy.memory;
	}
	read_memory(n, out);
}

/* ---- all GPUs of a node ---- */

/* Active links: those to that GPU, or all of them if switches lie between the two. */
static int count_nvlinks(const struct functions *f, device_t from, device_t to)
{
	struct pci_info there, peer;
	int direct = 0, up = 0, status = -1, enabled;

	if (!f->link_state || !f->link_peer || f->pci(to, &there) != SUCCESS)
		return 0;
	for (unsigned int link = 0; link < NVLINKS_MAX; link++) {
		if (f->link_state(from, link, &enabled) != SUCCESS || enabled != ENABLED)
			continue;
		up++;
		direct += f->link_peer(from, link, &peer) == SUCCESS &&
			peer.domain == there.domain && peer.bus == there.bus &&
			peer.device == there.device;
	}
	if (direct > 0 || !f->p2p)
		return direct;
	return f->p2p(from, to, P2P_NVLINK, &status) == SUCCESS && status == P2P_OK ? up : 0;
}

static bool list_gpu(const struct functions *f, device_t device, struct nvml_gpu *out)
{
	struct pci_info pci;

	if (f->pci(device, &pci) != SUCCESS)
		return false;
	snprintf(out->pci, sizeof(out->pci), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
	if (!f->name || f->name(device, out->name, sizeof(out->name)) != SUCCESS)
		out->name[0] = '\0';
	if (!f->uuid || f->uuid(device, out->uuid, sizeof(out->uuid)) != SUCCESS)
		out->uuid[0] = '\0';
	return true;
}

static void list_all(const struct functions *f, struct nvml_gpus *out)
{
	device_t device[NVML_GPUS_MAX];
	unsigned int count = 0;

	if (!f->count || !f->device_by_index || !f->pci || f->count(&count) != SUCCESS)
		return;
	for (unsigned int i = 0; i < count && out->n < NVML_GPUS_MAX; i++)
		if (f->device_by_index(i, &device[out->n]) == SUCCESS &&
			list_gpu(f, device[out->n], &out->gpu[out->n]))
			out->n++;
	for (int a = 0; a < out->n; a++)
		for (int b = 0; b < out->n; b++) {
			if (!f->ancestor ||
				f->ancestor(device[a], device[b], &out->path[a][b]) != SUCCESS)
				out->path[a][b] = -1;
			out->nvlinks[a][b] = a == b ? 0 : count_nvlinks(f, device[a], device[b]);
		}
}

struct nvml_gpus *nvml_list(const char *library)
{
	struct nvml n = {0};
	struct nvml_gpus *out = NULL;
	char error[256];

	if (load(&n, library, error, sizeof(error)) == 0 && n.f.init() == SUCCESS) {
		out = memory_zeroed(1, sizeof(*out));
		list_all(&n.f, out);
		n.f.shutdown();
	}
	if (n.library)
		dlclose(n.library);
	return out;
}

const char *nvml_path_name(int path)
{
	static const struct {
		int path;
		const char *name;
	} names[] = {{0, "PIX"}, {10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].path == path)
			return names[i].name;
	return "";
}

/* A libnvidia-ml.so.1 of one GPU whose values change from call to call. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct utilization {
	unsigned int gpu, memory;
};
struct memory {
	unsigned long long total, free, used;
};
struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};
struct process {
	unsigned int pid;
	unsigned long long used;
	unsigned int gi, ci;
};

struct pci_info {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

static int the_device, other_device;

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlShutdown(void)
{
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
	if (strcmp(pci, "0000:01:00.0") != 0)
		return 6;
	*out = &the_device;
	return 0;
}

int nvmlSystemGetDriverVersion(char *out, unsigned int bytes)
{
	snprintf(out, bytes, "580.1");
	return 0;
}

int nvmlDeviceGetName(void *d, char *out, unsigned int bytes)
{
	snprintf(out, bytes, "Some GPU");
	return 0;
}

int nvmlDeviceGetUUID(void *d, char *out, unsigned int bytes)
{
	snprintf(out, bytes, "GPU-1-2");
	return 0;
}

int nvmlDeviceGetIndex(void *d, unsigned int *out)
{
	*out = 3;
	return 0;
}

int nvmlDeviceGetClockInfo(void *d, int which, unsigned int *mhz)
{
	*mhz = which == 1 ? 1980 : 2619;
	return d == &the_device ? 0 : 1;
}

/* idle at first, then power */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *reasons)
{
	static int calls;

	*reasons = calls++ ? 4 : 1;
	return 0;
}

int nvmlDeviceGetTemperature(void *d, int sensor, unsigned int *celsius)
{
	static unsigned int calls;

	*celsius = 40 + calls++ % 2 * 10;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *d, unsigned int *mw)
{
	*mw = 412345;
	return 0;
}

/* 1.5 J from call to call */
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj)
{
	static unsigned long long used;

	*mj = used += 1500;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *d, struct utilization *out)
{
	return 3; /* not supported */
}

int nvmlDeviceGetMemoryInfo(void *d, struct memory *out)
{
	*out = (struct memory){80ULL << 30, 60ULL << 30, 20ULL << 30};
	return 0;
}

/* The driver's own GiB is not in used. */
int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory_v2 *out)
{
	if (out->version != (sizeof(*out) | 2U << 24))
		return 25; /* another version is expected */
	*out = (struct memory_v2){out->version, 80ULL << 30, 1ULL << 30, 60ULL << 30, 19ULL << 30};
	return 0;
}

/* This process, and process 1. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned int *n, struct process *out)
{
	if (*n < 2)
		return 7;
	out[0] = (struct process){.pid = (unsigned int)getpid()};
	out[1] = (struct process){.pid = 1, .used = 3ULL << 30};
	*n = 2;
	return 0;
}

/* Two GPUs under one switch. The first has two NVLinks to the other, and one that is down. */
int nvmlDeviceGetCount_v2(unsigned int *out)
{
	*out = 2;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **out)
{
	*out = index == 0 ? &the_device : &other_device;
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *d, struct pci_info *out)
{
	*out = (struct pci_info){.bus = d == &the_device ? 1 : 0xb2};
	return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
	*level = a == b ? 0 : 10;
	return 0;
}

int nvmlDeviceGetNvLinkState(void *d, unsigned int link, int *enabled)
{
	*enabled = link < 2;
	return d == &the_device && link < 3 ? 0 : 3;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned int link, struct pci_info *out)
{
	return nvmlDeviceGetPciInfo_v3(&other_device, out);
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int which, int *status)
{
	*status = 1;
	return 0;
}

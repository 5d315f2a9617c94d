/*
 * nvml.h: the state of one GPU, from NVIDIA's management library, which is loaded at run time: the
 * build needs no header of it and no GPU. Names and values follow NVML's API reference (nvml.h of
 * CUDA 13).
 */
#ifndef GPT2D_ENGINE_REPORT_NVML_H
#define GPT2D_ENGINE_REPORT_NVML_H

#include <stddef.h>
#include <stdint.h>

struct nvml; /* the library and one device of it */

enum { NVML_TEXT_BYTES = 96 };
struct nvml_device {
	char name[NVML_TEXT_BYTES], uuid[NVML_TEXT_BYTES], driver[NVML_TEXT_BYTES];
	int64_t index; /* index among the machine's GPUs, as in nvidia-smi; -1: not known */
};

/* -1: this GPU or driver does not report it. */
struct nvml_sample {
	int64_t sm_mhz, memory_mhz;
	int64_t throttle; /* reasons, bits; idle is one of them */
	int64_t temperature_c;
	int64_t power_mw;
	int64_t gpu_percent, memory_percent; /* of the time in which either was busy */
	int64_t used_bytes, total_bytes;     /* used: as in nvidia-smi, if the driver reports it */
	/*
	 * Processes that compute on it except this one and its siblings (children of one parent);
	 * not known if this process itself is not in the list, as in a container.
	 */
	int64_t others;
	int64_t other_pid, other_bytes; /* the one of them with most memory; -1: not known */
};

/*
 * library: file name, NULL for the driver's own. pci: "0000:01:00.0" of the device. 0 or a negative
 * errno with error naming what is not there.
 */
int nvml_open(
	const char *library, const char *pci, struct nvml **out, char *error, size_t error_bytes);
void nvml_close(struct nvml *n); /* takes NULL */
const struct nvml_device *nvml_device(const struct nvml *n);
void nvml_read(const struct nvml *n, struct nvml_sample *out);

/*
 * All GPUs of this node that the driver shows this process, whatever CUDA_VISIBLE_DEVICES says, and
 * what is between two of them: NVLinks, directly or through switches (0: none), and the PCIe path
 * (NVML's nvmlGpuTopologyLevel_t; -1: not known).
 */
enum { NVML_GPUS_MAX = 32 };
struct nvml_gpu {
	char name[NVML_TEXT_BYTES], uuid[NVML_TEXT_BYTES];
	char pci[32]; /* "0000:01:00.0", as sysfs names it */
};
struct nvml_gpus {
	int n;
	struct nvml_gpu gpu[NVML_GPUS_MAX];
	int nvlinks[NVML_GPUS_MAX][NVML_GPUS_MAX], path[NVML_GPUS_MAX][NVML_GPUS_MAX];
};
/* From malloc; NULL: there is no driver, or it does not start. library: as of nvml_open. */
struct nvml_gpus *nvml_list(const char *library);
/* "PIX", as nvidia-smi topo -m names the path; "" for -1. */
const char *nvml_path_name(int path);

/* Millijoules since the driver was loaded, of Volta and later; -1: not known. */
int64_t nvml_energy_mj(const struct nvml *n);

#endif

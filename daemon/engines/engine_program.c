#include "daemon/engines/engine_program.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/paths.h"

const char *engine_program_device_name(enum settings_device device)
{
	static const char *const names[] = {[DEVICE_UNSET] = "engine",
		[DEVICE_CPU] = "cpu",
		[DEVICE_CUDA] = "cuda",
		[DEVICE_AUTO] = "auto"};

	return names[device];
}

int engine_program_beside(
	const char *name, char *out, size_t out_bytes, char *error, size_t error_bytes)
{
	static const char *const folders[] = {"", "../libexec/gpt2d/", "../engine/"};
	char own[PATH_MAX], *slash;
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (n < 0) {
		snprintf(error, error_bytes,
			"/proc/self/exe: %s; gpt2d looks for gpt2-engine-%s beside it",
			strerror(errno), name);
		return -ENOENT;
	}
	own[n] = '\0';
	slash = strrchr(own, '/');
	for (size_t i = 0; slash != NULL && i < sizeof(folders) / sizeof(folders[0]); i++) {
		int length = snprintf(out, out_bytes, "%.*s/%sgpt2-engine-%s", (int)(slash - own),
			own, folders[i], name);

		if (length > 0 && (size_t)length < out_bytes && access(out, X_OK) == 0) {
			/* status shows it: without ".." if realpath works */
			if (realpath(out, own) != NULL && strlen(own) < out_bytes)
				strcpy(out, own);
			return 0;
		}
	}
	snprintf(error, error_bytes, "no gpt2-engine-%s beside %.1000s or in ../libexec/gpt2d",
		name, own);
	return -ENOENT;
}

/* 0, or -ENODEV with why: there is no NVIDIA device to open. */
static int find_gpu(char *why, size_t why_bytes)
{
	glob_t found = {0};
	int rc = glob("/dev/nvidia[0-9]*", 0, NULL, &found);

	if (rc != 0)
		rc = access("/dev/dxg", F_OK); /* the GPU of a Windows host */
	globfree(&found);
	if (rc == 0)
		return 0;
	snprintf(why, why_bytes,
		"no /dev/nvidia0: this machine has no NVIDIA GPU, or its driver is not loaded, or "
		"the container was not given it");
	return -ENODEV;
}

static int given(
	const struct settings *s, struct engine_program *p, char *error, size_t error_bytes)
{
	int rc = paths_absolute(s->engine, "engine", p->path, sizeof(p->path), error, error_bytes);
	struct stat st;

	if (rc < 0)
		return rc;
	if (stat(p->path, &st) < 0 || access(p->path, X_OK) < 0)
		rc = -errno;
	else if (S_ISDIR(st.st_mode))
		rc = -EISDIR;
	if (rc < 0)
		snprintf(error, error_bytes, "engine: %s: %s", p->path, strerror(-rc));
	return rc;
}

static int find_cuda(struct engine_program *p, char *why, size_t why_bytes)
{
	int rc = engine_program_beside("cuda", p->path, sizeof(p->path), why, why_bytes);

	p->device = DEVICE_CUDA;
	return rc == 0 ? find_gpu(why, why_bytes) : rc;
}

static int find_cpu(struct engine_program *p, char *error, size_t error_bytes)
{
	char why[PATH_MAX];
	int rc = engine_program_beside("cpu", p->path, sizeof(p->path), why, sizeof(why));

	p->device = DEVICE_CPU;
	if (rc < 0)
		snprintf(error, error_bytes, "engine: %s: give --engine", why);
	return rc;
}

int engine_program_find(
	const struct settings *s, struct engine_program *out, char *error, size_t error_bytes)
{
	enum settings_device asked = (enum settings_device)s->device;
	struct engine_program p = {0};
	char why[PATH_MAX];
	int rc = 0;

	if (asked == DEVICE_UNSET)
		asked = paths_are_system() ? DEVICE_CPU : DEVICE_AUTO;
	if (s->engine != NULL) {
		rc = given(s, &p, error, error_bytes);
		p.device = (enum settings_device)s->device;
		if (p.device == DEVICE_AUTO) /* the program determines the device */
			p.device = DEVICE_UNSET;
		if (rc == 0 && p.device == DEVICE_CUDA && (rc = find_gpu(why, sizeof(why))) < 0)
			snprintf(error, error_bytes, "device: cuda: %s", why);
	} else if (asked == DEVICE_CPU) {
		rc = find_cpu(&p, error, error_bytes);
	} else {
		rc = find_cuda(&p, why, sizeof(why));
		if (rc < 0 && asked == DEVICE_CUDA)
			snprintf(error, error_bytes,
				"device: cuda: %s; %s, or device = cpu trains on the processors",
				why,
				rc == -ENODEV ? "see nvidia-smi"
					      : "the package gpt2d-cuda has it, or a build "
						"with -Dcuda=enabled");
		if (rc < 0 && asked == DEVICE_AUTO) {
			rc = find_cpu(&p, error, error_bytes);
			snprintf(p.why, sizeof(p.why), "%s", why);
		} else if (rc == 0 && asked == DEVICE_AUTO) {
			snprintf(p.why, sizeof(p.why), "found a GPU, and an engine for it");
		}
	}
	if (rc == 0)
		*out = p;
	return rc;
}

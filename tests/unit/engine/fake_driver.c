/*
 * A libcuda.so.1 that gets no further than cuInit: of the version FAKE_DRIVER_VERSION, as the CUDA
 * runtime counts, and with cuInit failing with FAKE_DRIVER_INIT.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_FOUND = 500 };

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, void *status);

static int number(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

int cuInit(unsigned int flags)
{
	(void)flags;
	return number("FAKE_DRIVER_INIT");
}

int cuDriverGetVersion(int *version)
{
	*version = number("FAKE_DRIVER_VERSION");
	return 0;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, void *status)
{
	uintptr_t found = 0;

	(void)version;
	(void)flags;
	(void)status;
	if (strcmp(name, "cuInit") == 0)
		found = (uintptr_t)cuInit;
	else if (strcmp(name, "cuDriverGetVersion") == 0)
		found = (uintptr_t)cuDriverGetVersion;
	else if (name[0] == '\0' || strcmp(name, "cuGetProcAddress") == 0)
		found = (uintptr_t)cuGetProcAddress_v2;
	*out = (void *)found;
	return found ? 0 : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

#include "kernels/cpu/context.h"

#include <cblas.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/vec.h"

#ifdef K_DOUBLE
#define CONTEXT_DTYPE K_FP64
#else
#define CONTEXT_DTYPE K_FP32
#endif

/* The value of "key : value" in a file of /proc; false when missing. */
static bool proc_value(const char *path, const char *key, char *value, size_t bytes)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof line, file)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, key, strlen(key)) != 0)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(value, bytes, "%s", colon);
		found = true;
	}
	fclose(file);
	return found;
}

static int64_t meminfo_bytes(const char *key)
{
	char value[64];

	if (!proc_value("/proc/meminfo", key, value, sizeof value))
		return 0;
	return strtoll(value, NULL, 10) * 1024;
}

static void describe(struct k_context *ctx)
{
	const char *config = openblas_get_config();
	char version[64] = "";

	if (!proc_value("/proc/cpuinfo", "model name", ctx->name, sizeof ctx->name))
		snprintf(ctx->name, sizeof ctx->name, "unknown processor");
	ctx->memory_total_bytes = meminfo_bytes("MemTotal");
	sscanf(config, "OpenBLAS %63s", version);
	snprintf(ctx->library, sizeof ctx->library, "OpenBLAS %s %s", version,
		openblas_get_corename());
}

/* The limit that refuses address space: the total one if both are set. */
static const char *limit_name(void)
{
	struct rlimit all, data;

	return getrlimit(RLIMIT_AS, &all) == 0 && all.rlim_cur == RLIM_INFINITY &&
			getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY
		? "ulimit -d"
		: "ulimit -v";
}

int k_context_create(const struct k_context_options *options, struct k_context **out)
{
	struct k_context *ctx = calloc(1, sizeof *ctx);
	int rc;

	if (!ctx)
		return -ENOMEM;
	rc = pool_create(options->threads, &ctx->pool);
	if (rc < 0)
		goto no_pool;
	/* The pool's threads call BLAS in parallel: BLAS itself must not start threads. */
	openblas_set_num_threads(1);
	rc = blas_reserve(options->threads);
	if (rc < 0) {
		if (options->error)
			snprintf(options->error, options->error_bytes,
				"no address space for the matrix products of %d thread%s, %d MiB "
				"for each (%s)",
				options->threads, options->threads == 1 ? "" : "s",
				BLAS_BUFFER_MIB, limit_name());
		goto no_blas;
	}
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->vec = vec_choose(0);
	ctx->dtype = CONTEXT_DTYPE;
	describe(ctx);
	*out = ctx;
	return 0;

no_blas:
	pool_destroy(ctx->pool);
no_pool:
	free(ctx);
	return rc;
}

void k_context_destroy(struct k_context *ctx)
{
	if (!ctx)
		return;
	pool_destroy(ctx->pool);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

void k_context_set_threads(struct k_context *ctx, int threads)
{
	pool_set_threads(ctx->pool, threads);
}

int k_context_set_dtype(struct k_context *ctx, enum k_dtype dtype)
{
	if (dtype != CONTEXT_DTYPE)
		return -ENOTSUP;
	ctx->dtype = dtype;
	return 0;
}

enum k_dtype k_context_dtype(const struct k_context *ctx)
{
	return ctx->dtype;
}

size_t k_elem_bytes(const struct k_context *ctx)
{
	return sizeof(k_real);
}

void k_context_info(const struct k_context *ctx, struct k_device_info *out)
{
	*out = (struct k_device_info){
		.backend = "cpu",
		.name = ctx->name,
		.library = ctx->library,
		.memory_total_bytes = ctx->memory_total_bytes,
		.memory_free_bytes = meminfo_bytes("MemAvailable"),
	};
}

int64_t k_choices(const struct k_context *ctx, struct k_choice *out, int64_t max)
{
	return 0;
}

int64_t k_choices_set(struct k_context *ctx, const struct k_choice *choices, int64_t n)
{
	return 0;
}

int k_choices_begin(struct k_stream *s, void *memory, int64_t bytes)
{
	return -ENOTSUP;
}

int k_choices_end(struct k_stream *s)
{
	return 0;
}

int64_t k_choices_took_bytes(const struct k_context *ctx)
{
	return 0;
}

void context_fail(struct k_context *ctx, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&ctx->lock);
	if (!atomic_load(&ctx->failed)) {
		va_start(args, format);
		vsnprintf(ctx->error, sizeof ctx->error, format, args);
		va_end(args);
		atomic_store(&ctx->failed, true);
	}
	pthread_mutex_unlock(&ctx->lock);
}

const char *k_context_error(const struct k_context *ctx)
{
	return atomic_load(&ctx->failed) ? ctx->error : NULL;
}

#include "daemon/runs/settle.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/runs/marker.h"
#include "daemon/runs/run_files.h"
#include "daemon/runs/summary.h"
#include "proto/artifact.h"
#include "proto/json_text.h"

/* Who wrote the marker may have been killed between its rename and the sync of that. */
static int sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

int settle_remove(const char *dir)
{
	int rc = artifact_remove(dir, ARTIFACT_COMPLETE);

	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int settle_folder(const char *dir, const struct run *run, bool own, bool *complete)
{
	*complete = (own ? marker_valid(dir, run) : marker_segment_valid(dir, run)) &&
		sync_dir(dir) == 0;
	return *complete ? 0 : settle_remove(dir);
}

/* [{path, bytes}] of what lies in dir. */
static json_t *files_of(const char *dir)
{
	struct run_files files = {0};
	json_t *list = json_array();

	if (run_files_list(dir, NULL, &files) < 0)
		return list;
	for (size_t i = 0; i < files.n; i++)
		json_array_append_new(list,
			json_pack("{ss sI}", "path", files.file[i].path, "bytes",
				(json_int_t)files.file[i].bytes));
	run_files_finish(&files);
	return list;
}

void settle_summary(const char *dir, char **summary, char **artifacts)
{
	json_t *metrics, *said, *files;
	char *text;
	size_t n;

	*summary = *artifacts = NULL;
	text = run_files_read(dir, ARTIFACT_METRICS, MARKER_METRICS_BYTES, &n);
	metrics = json_text_value(text);
	free(text);
	said = summary_of_metrics(metrics);
	files = files_of(dir);
	if (said != NULL && json_object_set(said, "artifacts", files) == 0) {
		*summary = json_text_write(said, JSON_COMPACT, NULL);
		*artifacts = json_text_write(files, JSON_COMPACT, NULL);
	}
	if (*summary == NULL || *artifacts == NULL) {
		free(*summary);
		free(*artifacts);
		*summary = *artifacts = NULL;
	}
	json_decref(files);
	json_decref(said);
	json_decref(metrics);
}

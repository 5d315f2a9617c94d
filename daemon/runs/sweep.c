#include "daemon/runs/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_temporary(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && name[0] == '.' && strcmp(name + n - 4, ".tmp") == 0;
}

static void sweep(int parent, const char *name, int below);

/* That of a segment goes where it is empty: it was made ahead, or nothing was written. */
static void sweep_folder(int parent, const char *name, int below)
{
	sweep(parent, name, below);
	if (below == 0)
		unlinkat(parent, name, AT_REMOVEDIR);
}

/* below: how many levels of directories are looked into. */
static void sweep(int parent, const char *name, int below)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	struct stat st;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode) && is_temporary(entry->d_name))
			unlinkat(fd, entry->d_name, 0);
		else if (S_ISDIR(st.st_mode) && below > 0 && entry->d_name[0] != '.')
			sweep_folder(fd, entry->d_name, below - 1);
	}
	closedir(dir);
}

void sweep_run_dir(const char *dir)
{
	sweep(AT_FDCWD, dir, 2); /* segments/NNN-ARM */
}

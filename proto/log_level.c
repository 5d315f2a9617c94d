#include "proto/log_level.h"

#include <string.h>

static const char *const level_names[] = {"debug", "info", "warning", "error"};

const char *log_level_name(enum log_level level)
{
	return level_names[level >= LOG_DEBUG && level <= LOG_ERROR ? level : LOG_INFO];
}

enum log_level log_level_of(const char *name)
{
	for (int i = LOG_DEBUG; i <= LOG_ERROR; i++)
		if (strcmp(name, level_names[i]) == 0)
			return (enum log_level)i;
	return LOG_INFO;
}

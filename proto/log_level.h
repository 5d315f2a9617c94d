/* log_level.h: the level of a log line, in gpt2d's log and in the stored messages of a run. */
#ifndef GPT2D_PROTO_LOG_LEVEL_H
#define GPT2D_PROTO_LOG_LEVEL_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

const char *log_level_name(enum log_level level); /* "debug", "info", "warning", "error" */
/* The level of a name; LOG_INFO for any other text. */
enum log_level log_level_of(const char *name);

#endif

/* file.h: reads and writes that go on after a signal and after a short count. */
#ifndef GPT2D_PROTO_HOST_FILE_H
#define GPT2D_PROTO_HOST_FILE_H

#include <stddef.h>
#include <stdint.h>

/* All n bytes: 0 or a negative errno; -ENODATA: the file ends before. */
int file_read_at(int fd, void *out, size_t n, int64_t offset);
int file_write(int fd, const void *bytes, size_t n);
int file_write_at(int fd, const void *bytes, size_t n, int64_t offset);

/*
 * What fd has up to its end, at most max bytes, with a NUL behind it: 0 with *text (the caller's)
 * and *n, or a negative errno; -EFBIG: there is more.
 */
int file_read_all(int fd, size_t max, char **text, size_t *n);
/* The same of a regular file, which is no link; -EBADMSG: it is something else. */
int file_read(const char *path, size_t max, char **text, size_t *n);

#endif

/*
 * starved.h: explains why no process or thread could be started. fork(2) and pthread_create(3) then
 * return EAGAIN, "Resource temporarily unavailable", which does not name the usual causes, limits.
 * EAGAIN also means that there is no address space for a thread's stack.
 */
#ifndef GPT2D_PROTO_HOST_STARVED_H
#define GPT2D_PROTO_HOST_STARVED_H

/* rc: a negative errno of fork or pthread_create. Static text, or as strerror's. */
const char *starved_text(int rc);
/*
 * A text to append: the limit on address space that may be why memory was refused; "" if there is
 * none.
 */
const char *starved_memory_text(void);

#endif

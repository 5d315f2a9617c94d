/*
 * starved.h: what it means that no process or thread could be started. fork(2) and
 * pthread_create(3) say EAGAIN then, "Resource temporarily unavailable", which tells nobody of the
 * limits that it mostly comes from. A thread's stack that finds no address space is EAGAIN too.
 */
#ifndef GPT2D_PROTO_HOST_STARVED_H
#define GPT2D_PROTO_HOST_STARVED_H

/* rc: a negative errno of fork or pthread_create. Static, or as strerror's. */
const char *starved_text(int rc);
/* The limit on address space that may be why memory was refused, behind that; "" where none is. */
const char *starved_memory_text(void);

#endif

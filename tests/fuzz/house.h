/*
 * house.h: a whole gpt2d in this process, in a folder of its own, whose engines are links.h's; and
 * a client of it. What a client hears is checked: each line is a message, each reply has an id.
 */
#ifndef GPT2D_TESTS_FUZZ_HOUSE_H
#define GPT2D_TESTS_FUZZ_HOUSE_H

#include <stdbool.h>
#include <stddef.h>

struct house;

/* The folder a house lives in, made once and emptied by house_clear; ends in no '/'. */
const char *house_folder(void);
void house_clear(void);

/* 0, or the negative errno with which gpt2d refused to start, having said why. */
int house_open(struct house **out);
void house_close(struct house *h);

/* Bytes of client 0 or 1; its replies are read. */
void house_hear(struct house *h, int client, const void *bytes, size_t n);
void house_hang_up(struct house *h, int client);
/* Goes on until nothing moves. */
void house_settle(struct house *h);

#endif

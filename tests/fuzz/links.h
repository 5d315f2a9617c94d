/*
 * links.h: engines without processes. It replaces daemon/engines/engine_link.c in a fuzz target: an
 * engine sends hello and gets ready by itself, and otherwise sends and does what the target
 * requests.
 */
#ifndef GPT2D_TESTS_FUZZ_LINKS_H
#define GPT2D_TESTS_FUZZ_LINKS_H

#include <stdbool.h>
#include <stddef.h>

enum { LINKS_CHECKER = 9 }; /* else the number of a rank */

/* Every engine says what it owes: hello, ready, a checker's answer. True when one did. */
bool links_turn(void);
/* The engine says line (n bytes). */
void links_say(int who, const char *line, size_t n);
/* The engine's process ends: killed, or by itself. The target must notify gpt2d. */
void links_end(int who, bool killed);
void links_close(int who); /* it closes its link */

#endif

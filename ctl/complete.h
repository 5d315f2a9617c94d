/*
 * complete.h: what may stand where the cursor is, for the shells' completion. Verbs, options and
 * choices come from the verb table, keys from the spec's, runs from the daemon.
 */
#ifndef GPT2D_CTL_COMPLETE_H
#define GPT2D_CTL_COMPLETE_H

#include <stddef.h>
#include <stdio.h>

struct ctl;

/*
 * words are those of the command line without the program's name, up to the one with the cursor,
 * which may be empty. One line for each candidate that begins as the last word does: the word, a
 * tab, what it is. A line ":files" or ":dirs" says that names of files or folders may stand there
 * too. Ends the process after COMPLETE_PATIENCE_MS, without runs, when the daemon does not answer.
 */
enum { COMPLETE_PATIENCE_MS = 700 };
void complete_words(const struct ctl *ctl, char *const *words, size_t n, FILE *out);

#endif

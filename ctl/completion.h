/* completion.h: the scripts that let bash, zsh and fish complete gpt2ctl's command line. */
#ifndef GPT2D_CTL_COMPLETION_H
#define GPT2D_CTL_COMPLETION_H

#include <stdio.h>

/* The script of "bash", "zsh" or "fish"; -EINVAL for another shell. */
int completion_print(const char *shell, FILE *out);

#endif

/* man.h: what the tables of gpt2ctl say in its manual pages. */
#ifndef GPT2D_CTL_MAN_H
#define GPT2D_CTL_MAN_H

#include "proto/schema/man_page.h"

extern const struct man_page_part man_parts[];

#endif

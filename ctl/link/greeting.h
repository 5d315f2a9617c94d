/* greeting.h: what gpt2ctl says in hello, and what to tell where gpt2d is of another build. */
#ifndef GPT2D_CTL_LINK_GREETING_H
#define GPT2D_CTL_LINK_GREETING_H

#include <jansson.h>

#include "ctl/ctl.h"

/* For METHOD_HELLO; owned by the caller. */
json_t *greeting_params(void);
/* Its answer: 0, or an exit code with e. */
int greeting_check(const json_t *hello, struct ctl_error *e);
/* gpt2d refused: it may have sent both versions, or have named them in its message. To e. */
int greeting_refused(struct ctl_error *e);

#endif

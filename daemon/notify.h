/* notify.h: what systemd wants to know, when it asked (NOTIFY_SOCKET). */
#ifndef GPT2D_NOTIFY_H
#define GPT2D_NOTIFY_H

void notify_ready(const char *status);
void notify_stopping(void);

#endif

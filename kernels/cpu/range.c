#include "kernels/kernels.h"

void k_range_begin(const char *name)
{
}

void k_range_end(void)
{
}

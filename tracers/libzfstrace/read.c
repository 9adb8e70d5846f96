// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of reads and writes. */
#include <string.h>

#include "../bpf/read.h"
#include "internal.h"

_Static_assert((int)READ_OPS == ZFSTRACE_READ_OPS, "header and BPF disagree");

const struct zfstrace_reads *zfstrace_reads(const struct zfstrace *t, unsigned int i)
{
	return t->def && strcmp(t->def->name, "read") == 0 ? datasets_sums(t, i) : NULL;
}

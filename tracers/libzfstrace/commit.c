// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of commits. */
#include <string.h>

#include "../bpf/commit.h"
#include "internal.h"

const struct zfstrace_commits *zfstrace_commits(const struct zfstrace *t, unsigned int i)
{
	return t->def && strcmp(t->def->name, "commit") == 0 ? datasets_sums(t, i) : NULL;
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The dirty data of a pool. */
#ifndef ZFSTRACE_BPF_DIRTY_H
#define ZFSTRACE_BPF_DIRTY_H

#include "pool.bpf.h"
#include "zfs_views.h"

/* What the search has found; 0 = not yet. */
unsigned int off_dirty_total;

/*
 * dp_dirty_total in bytes; 0 when it is not known. Without BTF: the word that is
 * nearly the sum of the four before it, dp_dirty_pertxg[], found as soon as
 * there is enough of it not to be taken for something else.
 */
static __always_inline __u64 pool_dirty(__u64 dp)
{
	struct dsl_pool *p = (struct dsl_pool *)dp;

	if (bpf_core_field_exists(p->dp_dirty_total))
		return BPF_CORE_READ(p, dp_dirty_total);
	for (int off = 432; off <= 720 && !off_dirty_total; off += 8) {
		__u64 total = read_u64(dp + off), sum;

		if (total < 1 << 16 || total >> 48)
			continue;
		sum = read_u64(dp + off - 8) + read_u64(dp + off - 16) + read_u64(dp + off - 24) +
		      read_u64(dp + off - 32);
		/* they change while they are read */
		if (sum + total / 16 - total <= total / 8)
			off_dirty_total = off;
	}
	return off_dirty_total ? read_u64(dp + off_dirty_total) : 0;
}

#endif

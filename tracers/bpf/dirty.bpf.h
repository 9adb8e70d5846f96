/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The dirty data of a pool. */
#ifndef ZFSTRACE_BPF_DIRTY_H
#define ZFSTRACE_BPF_DIRTY_H

#include "dirty_total.h"
#include "pool.bpf.h"
#include "zfs_views.h"

/* The result of the search; 0 = not found yet. */
unsigned int off_dirty_total;

/*
 * dp_dirty_total in bytes; 0 when unknown. Without BTF it is searched for, and
 * found as soon as it is too large to be confused with anything else.
 */
static __always_inline __u64 pool_dirty(__u64 dp)
{
	struct dsl_pool *p = (struct dsl_pool *)dp;
	unsigned long long words[DIRTY_WORDS] = {};

	if (bpf_core_field_exists(p->dp_dirty_total))
		return BPF_CORE_READ(p, dp_dirty_total);
	for (int off = 432; off <= 720 && !off_dirty_total; off += 8) {
		bpf_probe_read_kernel(words, sizeof(words), (void *)(dp + off - DIRTY_TOTAL * 8));
		if (is_dirty_total(words))
			off_dirty_total = off;
	}
	return off_dirty_total ? read_u64(dp + off_dirty_total) : 0;
}

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Pools: from the arguments of probes to the pool's name. */
#ifndef ZFSTRACE_BPF_POOL_H
#define ZFSTRACE_BPF_POOL_H

#include "config.bpf.h"

static __always_inline __u64 read_u64(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr);
	return v;
}

static __always_inline __u32 read_u32(__u64 addr)
{
	__u32 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)addr);
	return v;
}

/* A dsl_pool_t begins with the pointer to its spa_t, and that with the pool's
 * name (2.1 to 2.4). */
static __always_inline __u64 pool_spa(__u64 dp)
{
	return read_u64(dp);
}

/* A pool's name begins with a letter and is ASCII; a kernel address is not. */
static __always_inline bool is_spa(__u64 spa)
{
	__u64 text = spa ? read_u64(spa) : 0;
	char c = (char)(text | 0x20);

	return c >= 'a' && c <= 'z' && !(text & 0x8080808080808080);
}

/* Whether a pool is to be measured. */
static __always_inline bool pool_wanted(__u64 spa)
{
	if (!config.pool[0])
		return true;
	for (int i = 0; i < ZFSTRACE_POOL_LEN; i += 8) {
		__u64 word = read_u64(spa + i);

		for (int k = i; k < i + 8; k++, word >>= 8) {
			if ((char)word != config.pool[k])
				return false;
			if (!config.pool[k])
				return true;
		}
	}
	return true;
}

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The configuration of every object, and its switch. */
#ifndef ZFSTRACE_BPF_CONFIG_H
#define ZFSTRACE_BPF_CONFIG_H

#include "trace.h"

const volatile struct trace_config config SEC(".rodata.config") = {};

/* Set by user space once every probe is attached: an operation that passes
 * only some of them would be measured wrongly. */
int enabled SEC(".data.enabled") = 0;

/* With config.lazy both programs of a probe may be attached for a moment, and one of them counts.
 * Volatile, or the compiler reads `enabled` before it looks at config.lazy, and the verifier, which
 * knows that, cannot leave the rest out. */
#define TURN(way) (!config.lazy || *(volatile int *)&enabled == (way))

/* name is a pool's name, ZFSTRACE_POOL_LEN bytes of a spa_t or a slot. */
static __always_inline bool same_pool(const char *name)
{
	for (int i = 0; i < ZFSTRACE_POOL_LEN; i++) {
		if (name[i] != config.pool[i])
			return false;
		if (!name[i])
			break;
	}
	return true;
}

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The throttle tracer: the key of its waiters. */
#ifndef ZFSTRACE_BPF_THROTTLE_H
#define ZFSTRACE_BPF_THROTTLE_H

#include "trace.h"

struct waiter_key {
	unsigned long long spa;
	unsigned int pid;
	unsigned int pad;
};

#endif

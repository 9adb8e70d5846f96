/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef ZFSTRACE_BPF_SLEEPER_H
#define ZFSTRACE_BPF_SLEEPER_H

#include "../libzfstrace/zfstrace_tables.h"

/* A thread that is off its CPU. */
struct sleeper {
	unsigned long long since; /* 0: it is not */
	unsigned long long waker; /* stack */
	unsigned int flags;	  /* STACK_* */
	unsigned int pad;
	char waker_comm[ZFSTRACE_COMM_LEN];
};

#endif

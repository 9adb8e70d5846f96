/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What user space tells the fsync programs before they are loaded. */
#ifndef ZFSTRACE_BPF_FSYNC_CONFIG_H
#define ZFSTRACE_BPF_FSYNC_CONFIG_H

#include "fsync.h"

struct fsync_config {
	unsigned int pid;   /* tgid, 0 = all */
	unsigned int slots; /* entries of the slot maps */
	unsigned long long slow_ns;
	unsigned long long objset; /* 0 = all */
	unsigned int objset_dev;   /* device number, kernel encoding */
	unsigned int pad;
	char pool[POOL_NAME_LEN]; /* "" = all */
};

#endif

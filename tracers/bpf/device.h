/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The device tracer: a table of leaf vdevs. */
#ifndef ZFSTRACE_BPF_DEVICE_H
#define ZFSTRACE_BPF_DEVICE_H

#include "trace.h"

/* zio_priority_t (include/sys/zio_priority.h, 2.1 to 2.4), and two of our own. */
#define PRIORITIES 9
#define CLASS_UNKNOWN PRIORITIES
#define CLASS_FLUSH (PRIORITIES + 1)
#define CLASSES (PRIORITIES + 2)

struct io_class {
	unsigned long long count;
	unsigned long long bytes;
	/* over those that were at the device when one ended, it included;
	 * active_count 0: cannot be read */
	unsigned long long active_sum;
	unsigned long long active_count;
	unsigned long long active_max;
	struct hist queue;
	struct hist device;
};

/* The table "vdevs". Entry 0 is the rest. */
struct vdev_slot {
	unsigned long long guid;
	unsigned long long used;
	char pool[POOL_NAME_LEN];
	struct io_class classes[CLASSES];
};

#endif

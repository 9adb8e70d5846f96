/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ARC tracer: how long threads waited for eviction. */
#ifndef ZFSTRACE_BPF_ARC_H
#define ZFSTRACE_BPF_ARC_H

#include "trace.h"

/* The one entry of the table "arc". */
struct arc_table {
	struct hist waits;
};

#endif

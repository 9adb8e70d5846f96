/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The txg tracer: one event for each txg that ended. */
#ifndef ZFSTRACE_BPF_TXG_H
#define ZFSTRACE_BPF_TXG_H

#include "trace.h"

/* What asked for a txg to be closed before its time; 0 = nothing was seen. */
enum txg_reason {
	TXG_REASON_NONE,
	TXG_REASON_DIRTY,  /* txg_kick */
	TXG_REASON_WAITER, /* txg_wait_synced, txg_wait_open */
};

/* CLOCK_MONOTONIC; 0 = not seen. */
struct txg_event {
	unsigned long long txg;
	unsigned long long opened;
	unsigned long long quiescing;
	unsigned long long quiesced;
	unsigned long long syncing;
	unsigned long long synced;
	unsigned long long last_syncing; /* of the txg before, when this one closed */
	unsigned long long zil_sync_ns;
	unsigned long long delay_ns;
	unsigned int delayed;
	unsigned int passes;
	unsigned int reason; /* enum txg_reason */
	unsigned int pad;
	char pool[POOL_NAME_LEN];
};

#endif

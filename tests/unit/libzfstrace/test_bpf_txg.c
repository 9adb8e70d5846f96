// SPDX-License-Identifier: BSD-2-Clause
/* Unit tests of the txg tracer's programs, run as functions: why txgs were closed. */
#include <string.h>

#include "check.h"
#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/txg.bpf.c"

static char spa[ZFSTRACE_POOL_LEN] = "tank";
static void *pool[2] = { spa };
static const struct zfstrace_txg *event = (const void *)shim_event;

#define DP ((__u64)pool)

static void start(void)
{
	shim_reset();
	enabled = 1;
}

/* From when it closes until it is on disk; why it closed. */
static unsigned int do_txg(__u64 txg)
{
	fentry_quiescing(NULL, DP, txg);
	fentry_opened(NULL, DP, txg + 1);
	fentry_quiesced(NULL, DP, txg);
	fentry_syncing(NULL, DP, txg);
	fentry_pass(NULL, DP, txg);
	fentry_synced(NULL, DP, txg);
	CHECK(event->txg == txg && event->passes == 1 && strcmp(event->pool, "tank") == 0);
	return event->reason;
}

static void test_reasons(void)
{
	start();
	CHECK(do_txg(100) == ZFSTRACE_TXG_REASON_NONE);
	CHECK(event->opened == 0 && event->last_syncing == 0);
	fentry_kick(NULL, DP, 101);
	CHECK(do_txg(101) == ZFSTRACE_TXG_REASON_DIRTY);
	CHECK(event->opened && event->last_syncing);
	CHECK(do_txg(102) == ZFSTRACE_TXG_REASON_NONE);
	fentry_wait_synced(NULL, DP, 0); /* until the open one is on disk for good */
	for (__u64 txg = 103; txg <= 105; txg++)
		CHECK(do_txg(txg) == ZFSTRACE_TXG_REASON_WAITER);
	CHECK(do_txg(106) == ZFSTRACE_TXG_REASON_NONE);
}

/* A pool is exported, and another one imported whose spa_t has the same address: nobody has wanted
 * its txgs closed. */
static void test_another_pool(void)
{
	start();
	(void)do_txg(100);
	fentry_kick(NULL, DP, 101);
	(void)do_txg(101);
	for (__u64 txg = 4; txg < 12; txg++) {
		CHECK(do_txg(txg) == ZFSTRACE_TXG_REASON_NONE);
		CHECK((event->last_syncing == 0) == (txg == 4));
	}
	fentry_wait_synced(NULL, DP, 12);
	CHECK(do_txg(12) == ZFSTRACE_TXG_REASON_WAITER);
}

int main(void)
{
	test_reasons();
	test_another_pool();
	return checked("BPF unit tests of txgs");
}

// SPDX-License-Identifier: BSD-2-Clause
/* Unit tests of the txg tracer's programs, run as functions: why txgs were closed. */
#include <stdio.h>
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
	memset(pool_spas, 0, sizeof(pool_spas));
	memset(pool_seen, 0, sizeof(pool_seen));
	enabled = 1;
}

/* From when it closes until it is on disk. */
static void run_txg(__u64 dp, __u64 txg)
{
	fentry_quiescing(NULL, dp, txg);
	fentry_opened(NULL, dp, txg + 1);
	fentry_quiesced(NULL, dp, txg);
	fentry_syncing(NULL, dp, txg);
	fentry_pass(NULL, dp, txg);
	fentry_synced(NULL, dp, txg);
}

/* Why it closed. */
static unsigned int do_txg_of(__u64 dp, __u64 txg)
{
	run_txg(dp, txg);
	CHECK(event->txg == txg && event->passes == 1 && strcmp(event->pool, "tank") == 0);
	return event->reason;
}

static unsigned int do_txg(__u64 txg)
{
	return do_txg_of(DP, txg);
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

/* Pools come and go, each with a spa_t of its own: none is left out for want of room. */
static void test_pools_come_and_go(void)
{
	static char names[3 * POOLS][ZFSTRACE_POOL_LEN];
	static void *dps[3 * POOLS][2];
	const struct counters *counted;

	start();
	counted = shim_array(&counters);
	for (int i = 0; i < 3 * POOLS; i++) {
		snprintf(names[i], sizeof(names[i]), "tank");
		dps[i][0] = names[i];
		shim_now += IDLE_NS / (POOLS / 2);
		/* nothing of the pool that had the place, whose txgs have lower numbers */
		for (__u64 n = 0; n < 3; n++) {
			__u64 txg = 4 + 10 * (__u64)i + n;

			CHECK(do_txg_of((__u64)dps[i], txg) == ZFSTRACE_TXG_REASON_NONE);
			CHECK((event->opened == 0) == (n == 0));
			CHECK((event->last_syncing == 0) == (n == 0));
		}
	}
	CHECK(counted->finished == 9 * POOLS && counted->lost_start == 0);
}

/* With more than there is room for, txgs of the others are lost, each once. */
static void test_too_many_pools(void)
{
	static char names[POOLS + 3][ZFSTRACE_POOL_LEN];
	static void *dps[POOLS + 3][2];
	const struct counters *counted;

	start();
	counted = shim_array(&counters);
	for (__u64 txg = 4; txg < 14; txg++) {
		shim_now += IDLE_NS / 4;
		for (int i = 0; i < POOLS + 3; i++) {
			dps[i][0] = names[i];
			run_txg((__u64)dps[i], txg);
		}
	}
	CHECK(counted->finished == 10 * POOLS && counted->lost_start == 10 * 3);
}

int main(void)
{
	test_pools_come_and_go();
	test_too_many_pools();
	test_reasons();
	test_another_pool();
	return checked("BPF unit tests of txgs");
}

// SPDX-License-Identifier: BSD-2-Clause
/* Unit tests of the throttle tracer's programs, run as functions: processes come and go. */
#include "check.h"
#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/throttle.bpf.c"

#define ENTRIES 8

static char spa[ZFSTRACE_POOL_LEN] = "tank";
static void *dp[2] = { spa };
static struct zfstrace_waiter *table;
static struct counters *counted;

static void start(void)
{
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;
	struct zfstrace t = { .config.slots = ENTRIES };

	shim_reset();
	spare_slot = 0;
	c->slots = ENTRIES;
	enabled = 1;
	shim_size(&waiters, ENTRIES);
	table = shim_array(&waiters);
	counted = shim_array(&counters);
	shim_session(&t, "throttle",
		     (struct shim_table[]) {
			     { "waiters", table }, { "free_slots", shim_array(&free_slots) }, {} });
	room_begin(&t);
}

static void do_wait(unsigned int pid)
{
	struct dmu_tx tx = { .tx_pool = (void *)dp };

	shim_tgid = shim_tid = pid;
	fentry_tx_wait(NULL, (__u64)&tx);
	fentry_tx_waited(NULL, (__u64)spa);
}

static unsigned int used(void)
{
	unsigned int n = 0;

	for (unsigned int i = 1; i < ENTRIES; i++)
		n += table[i].used;
	return n;
}

static __u64 waits_of(const struct zfstrace_waiter *w)
{
	__u64 n = 0;

	for (unsigned int k = 0; k < ZFSTRACE_WAITS; k++)
		n += w->count[k];
	return n;
}

static void test_processes(void)
{
	__u64 n = 0;

	start();
	for (unsigned int i = 0; i < 60; i++)
		do_wait(100 + i % 3);
	CHECK(used() == 3 && counted->slots_overflow == 0 && counted->finished == 60);
	for (unsigned int i = 1; i < ENTRIES; i++)
		n += waits_of(&table[i]);
	CHECK(n == 60);
	for (unsigned int i = 0; i < 20; i++)
		do_wait(200 + i);
	CHECK(used() == ENTRIES - 1 && counted->slots_overflow == 16 && waits_of(table) == 16);
}

/* Waits of a process for which the index has no room are counted, and take no entry. */
static void test_full_index(void)
{
	start();
	shim_size(&waiter_index, 2);
	for (unsigned int i = 0; i < 30; i++)
		do_wait(100 + i % 3);
	CHECK(used() == 2 && counted->slots_overflow == 10);
}

/* A wait whose beginning cannot be kept is lost, and not unfinished as well. */
static void test_no_room_for_a_start(void)
{
	struct dmu_tx tx = { .tx_pool = (void *)dp };

	start();
	shim_size(&waits, 2);
	for (unsigned int i = 0; i < 5; i++) {
		shim_tgid = shim_tid = 100 + i;
		fentry_tx_wait(NULL, (__u64)&tx);
	}
	for (unsigned int i = 0; i < 5; i++) {
		shim_tgid = shim_tid = 100 + i;
		fentry_tx_waited(NULL, (__u64)spa);
	}
	CHECK(counted->lost_start == 3 && counted->finished == 2 && counted->started == 2);
}

int main(void)
{
	test_processes();
	test_full_index();
	test_no_room_for_a_start();
	return checked("BPF unit tests of the throttle");
}

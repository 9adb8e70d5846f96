// SPDX-License-Identifier: BSD-2-Clause
/* Unit tests of the throttle tracer's programs, run as functions: processes come and go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/throttle.bpf.c"

static unsigned int failures;

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #cond);                          \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

#define ENTRIES 8

static struct pool_text spa = { "tank" };
static void *dp[2] = { &spa };
static struct waiter *table;
static struct counters *counted;

static void start(void)
{
	static const char *const names[] = { "waiters", "free_slots" };
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;
	struct zfstrace t = { .def = tracer_find("throttle"), .config.slots = ENTRIES };
	__u32 zero = 0;

	shim_reset();
	spare_slot = 0;
	c->slots = ENTRIES;
	enabled = 1;
	shim_size(&waiters, ENTRIES);
	table = bpf_map_lookup_elem(&waiters, &zero);
	counted = bpf_map_lookup_elem(&counters, &zero);
	for (unsigned int i = 0; i < t.def->map_count; i++)
		t.maps[i].at = strcmp(t.def->maps[i].name, names[0]) == 0 ? (void *)table
			       : strcmp(t.def->maps[i].name, names[1]) == 0
				       ? bpf_map_lookup_elem(&free_slots, &zero)
				       : NULL;
	room_begin(&t);
}

static void do_wait(unsigned int pid)
{
	struct dmu_tx tx = { .tx_pool = (void *)dp };

	shim_tgid = shim_tid = pid;
	fentry_tx_wait(NULL, (__u64)&tx);
	fentry_tx_waited(NULL, (__u64)&spa);
}

static unsigned int used(void)
{
	unsigned int n = 0;

	for (unsigned int i = 1; i < ENTRIES; i++)
		n += table[i].used;
	return n;
}

static __u64 waits_of(const struct waiter *w)
{
	__u64 n = 0;

	for (unsigned int k = 0; k < WAIT_KINDS; k++)
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

int main(void)
{
	test_processes();
	test_full_index();
	if (failures) {
		printf("BPF unit tests of the throttle: %u checks failed\n", failures);
		return 1;
	}
	printf("BPF unit tests of the throttle: all passed\n");
	return 0;
}

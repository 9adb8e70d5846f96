// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of the programs that sum stacks, run as functions: what samples of sleeps stand for.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/stacks.bpf.c"

#define US 1000ULL
#define MS (1000 * US)
#define SECONDS (1000 * MS)

static struct op *op;
static struct task_struct *me, *other;

/* A thread in an fsync, and one that is not. */
static void start(unsigned int mode, __u64 takes_ns)
{
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;

	shim_reset();
	memset(c, 0, sizeof(*c));
	c->mode = mode;
	enabled = 1;
	walk_ns = 0;
	shim_walk_ns = takes_ns;
	shim_tid = 101;
	other = shim_task();
	shim_tid = 100;
	me = shim_task();
	op = op_place((__u64)me);
	op->place.task = (__u64)me;
	op->tid = 100;
	op->active = 1;
	op->cur = STAGE_ISSUE;
}

/* What the programs see of it. */
static __u64 sleeps(__u64 stack, __u64 ns)
{
	shim_stack = stack;
	tp_sched_switch(NULL, false, me, other, 1);
	shim_now += ns;
	tp_sched_switch(NULL, false, other, me, 0);
	return ns + 100; /* the clock goes on with each look */
}

/* The time that all stacks stand for, or one does. */
static __u64 sum_of(__u64 stack, __u64 *walks)
{
	const struct stack_key *key;
	const void *value;
	__u64 ns = 0;

	for (unsigned int i = 0; (key = shim_entry(&sums, i, &value)); i++) {
		const struct stack *s = bpf_map_lookup_elem(&stacks, &key->stack);
		const struct stack_sum *sum = value;

		if (stack && (!s || s->ip[0] != stack))
			continue;
		ns += sum->ns;
		if (walks)
			*walks += sum->count;
	}
	return ns;
}

/* Nothing is lost but the part of a sample that is still to come. */
static void test_samples_stand_for_all_sleep(void)
{
	static const __u64 most[] = { 300 * US, 3 * MS, 300 * MS };

	for (unsigned int i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		__u64 slept = 0;

		start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 500);
		srandom(i);
		for (int n = 0; n < 2000; n++)
			slept += sleeps(1, (__u64)random() % most[i]);
		CHECK(sum_of(0, NULL) + op->unsampled_ns == slept);
		CHECK(op->unsampled_ns < sample_every());
	}
}

/* In each of many short sleeps, the time of a stack is in its sum as often as it is in truth. */
static void test_shares_are_right(void)
{
	__u64 slept[3] = { 0 }, all = 0, walks = 0;

	start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 500);
	srandom(1);
	for (int n = 0; n < 30000; n++) {
		__u64 stack = 1 + (__u64)n % 3;

		slept[stack - 1] += sleeps(stack, stack * 100 * US + (__u64)random() % (50 * US));
	}
	for (unsigned int i = 0; i < 3; i++) {
		double share = (double)sum_of(i + 1, &walks) / (double)slept[i];

		all += slept[i];
		CHECK(share > 0.95 && share < 1.05);
	}
	CHECK(walks <= all / SAMPLE_NS);
}

/* What is longer than a sample is never missed, and one walk does for all of it. */
static void test_long_sleeps_are_all_seen(void)
{
	__u64 walks = 0;

	start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 500);
	for (int n = 0; n < 50; n++) {
		sleeps(1, 100 * US);
		sleeps(2, 40 * MS);
	}
	CHECK(sum_of(2, &walks) >= 50 * 39 * MS);
	CHECK(walks == 50);
}

/* The slower walks are, the fewer there are, and their sum is right. */
static void test_slow_walks_are_few(void)
{
	__u64 slept = 0, walks = 0;

	start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 40 * US);
	for (int n = 0; n < 3000; n++)
		slept += sleeps(1, 700 * US);
	CHECK(sum_of(0, &walks) + op->unsampled_ns == slept);
	CHECK(walks * 40 * US * (WALKS_SHARE - 1) <= slept + 16 * SAMPLE_MOST_NS);
	CHECK(walks > slept / SAMPLE_MOST_NS);
}

/* Each of few walks is one of a sleep: those with a waker are all taken. */
static void test_wakeups_are_not_sampled(void)
{
	__u64 slept = 0, walks = 0;

	start(ZFSTRACE_STACKS_WAKEUP | ZFSTRACE_STACKS_OF_FSYNC, 500);
	for (int n = 0; n < 100; n++)
		slept += sleeps(1, 20 * US);
	CHECK(sum_of(0, &walks) == slept && walks == 100);
	CHECK(op->unsampled_ns == 0);
}

/* A sleep in a wait for a log block, however long, is split where the block was issued, written and
 * flushed. */
static void test_a_wait_is_split(__u64 unit)
{
	struct lwb_times *t;
	const struct stack_key *key;
	__u64 lwb[2] = { 0 }, of[STAGE_COUNT] = { 0 }, all = 0, begin;
	const void *value;

	start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 500);
	op->cur = CUR_WAIT;
	op->lwb = (__u64)lwb;
	begin = shim_now;
	t = lwb_issue(op->lwb, begin + 10 * unit);
	t->written = begin + 30 * unit;
	t->flushed = begin + 70 * unit;
	sleeps(1, 80 * unit);
	for (unsigned int i = 0; (key = shim_entry(&sums, i, &value)); i++) {
		of[key->stage] = ((const struct stack_sum *)value)->ns;
		all += of[key->stage];
	}
	CHECK(all <= 80 * unit && all > 78 * unit);
	CHECK(of[STAGE_BATCH_WAIT] > 9 * unit && of[STAGE_BATCH_WAIT] <= 10 * unit);
	CHECK(of[STAGE_LOG_WRITE] > 19 * unit && of[STAGE_LOG_WRITE] <= 20 * unit);
	CHECK(of[STAGE_FLUSH] > 38 * unit && of[STAGE_FLUSH] <= 40 * unit);
	CHECK(of[STAGE_WAKEUP] > 9 * unit && of[STAGE_WAKEUP] <= 10 * unit + US);
}

/* A thread whose fsync has never ended for the programs has, and another one has its address. */
static void test_another_thread_is_in_no_fsync(void)
{
	start(ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 500);
	sleeps(1, 40 * MS);
	CHECK(sum_of(1, NULL) >= 39 * MS);
	me->pid = 164;
	sleeps(2, 40 * MS);
	CHECK(sum_of(2, NULL) == 0);
}

int main(void)
{
	test_samples_stand_for_all_sleep();
	test_shares_are_right();
	test_long_sleeps_are_all_seen();
	test_slow_walks_are_few();
	test_wakeups_are_not_sampled();
	test_another_thread_is_in_no_fsync();
	test_a_wait_is_split(MS);
	test_a_wait_is_split(SECONDS);
	return checked("BPF unit tests (stacks)");
}

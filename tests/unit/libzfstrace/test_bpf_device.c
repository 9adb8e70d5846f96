// SPDX-License-Identifier: BSD-2-Clause
/* Unit tests of the device tracer's programs, run as functions: vdevs, and two CPUs at once. */
#include "check.h"
#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/device.bpf.c"

#define ENTRIES 8

static char spa[ZFSTRACE_POOL_LEN] = "tank";
static struct zfstrace_vdev *table;
static struct counters *counted;

static void start(void)
{
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;
	struct zfstrace t = { .config.slots = ENTRIES };

	shim_reset();
	spare_slot = 0;
	c->slots = ENTRIES;
	enabled = 1;
	shim_size(&vdevs, ENTRIES);
	table = shim_array(&vdevs);
	counted = shim_array(&counters);
	shim_session(&t, "device",
		     (struct shim_table[]) {
			     { "vdevs", table }, { "free_slots", shim_array(&free_slots) }, {} });
	room_begin(&t);
}

/* A synchronous write, or a flush, of a vdev. */
static void do_io(__u64 guid, unsigned int type)
{
	union {
		struct vdev vdev;
		__u64 words[32];
	} v = { .words = { guid, [VDEV_SPA / 8] = (__u64)spa } };
	struct zio zio = { .io_vd = &v.vdev, .io_type = type, .io_priority = 1 };

	if (type == TYPE_WRITE) {
		zio.io_size = 4096;
		zio.io_delta = 3000;
		zio.io_delay = 2000;
	}
	fentry_io_start(NULL, &zio);
	fentry_io_assess(NULL, &zio);
}

static unsigned int used(void)
{
	unsigned int n = 0;

	for (unsigned int i = 1; i < ENTRIES; i++)
		n += table[i].used;
	return n;
}

/* The writes of a vdev, in however many entries. */
static __u64 writes_of(__u64 guid)
{
	__u64 n = 0;

	for (unsigned int i = 1; i < ENTRIES; i++)
		if (table[i].used && table[i].guid == guid)
			n += table[i].classes[1].count;
	return n;
}

static void test_vdevs(void)
{
	start();
	for (unsigned int i = 0; i < 60; i++)
		do_io(100 + i % 3, TYPE_WRITE);
	CHECK(used() == 3 && counted->slots_overflow == 0);
	CHECK(writes_of(100) == 20 && writes_of(101) == 20 && writes_of(102) == 20);
	CHECK(table[1].classes[1].device.sum_ns == 20 * 2000);
	CHECK(table[1].classes[1].queue.sum_ns == 20 * 1000);
	for (unsigned int i = 0; i < 20; i++)
		do_io(200 + i, TYPE_WRITE);
	CHECK(used() == ENTRIES - 1 && counted->slots_overflow == 16);
	CHECK(table[0].classes[1].count == 16);
}

static void test_flushes(void)
{
	start();
	for (unsigned int i = 0; i < 10; i++)
		do_io(100, TYPE_FLUSH);
	CHECK(table[1].classes[ZFSTRACE_IO_FLUSH].count == 10 && writes_of(100) == 0);
	CHECK(counted->started == 10 && counted->finished == 10);
}

/* A flush whose beginning cannot be kept is lost, and not unfinished as well. */
static void test_no_room_for_a_start(void)
{
	static struct zio zios[32 << FLUSH_SET_BITS];
	unsigned int in_set = 0;

	start();
	for (unsigned int i = 0; i < ARRAY_SIZE(zios) && in_set < WAYS + 3; i++) {
		if (flush_set(&zios[i]) != flush_set(&zios[0]))
			continue;
		in_set++;
		zios[i].io_type = TYPE_FLUSH;
		fentry_io_start(NULL, &zios[i]);
	}
	CHECK(in_set == WAYS + 3);
	CHECK(counted->lost_start == 3 && counted->started == WAYS);
}

/* I/Os of a vdev for which the index has no room are counted, and take no entry. */
static void test_full_index(void)
{
	start();
	shim_size(&vdev_index, 2);
	for (unsigned int i = 0; i < 30; i++)
		do_io(100 + i % 3, TYPE_WRITE);
	CHECK(used() == 2 && counted->slots_overflow == 10);
}

static void meet(void)
{
	do_io(100, TYPE_WRITE);
}

/* Two CPUs meet a vdev at once: one entry, nothing lost, and the next has the other. */
static void test_met_at_once(void)
{
	start();
	shim_index = &vdev_index;
	shim_before_insert = meet;
	do_io(100, TYPE_WRITE);
	CHECK(used() == 1 && writes_of(100) == 2);
	for (unsigned int i = 1; i < ENTRIES - 1; i++)
		do_io(100 + i, TYPE_WRITE);
	CHECK(used() == ENTRIES - 1 && counted->slots_overflow == 0);
}

int main(void)
{
	test_vdevs();
	test_flushes();
	test_no_room_for_a_start();
	test_full_index();
	test_met_at_once();
	return checked("BPF unit tests of devices");
}

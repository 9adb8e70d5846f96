// SPDX-License-Identifier: BSD-2-Clause
/* The tracers: their probes, what the absence of a probe costs, their maps. */
#include <string.h>

#include "../bpf/commit.h"
#include "../bpf/fsync.h"
#include "../bpf/read.h"
#include "../bpf/stacks.h"
#include "internal.h"

/*
 * Order matters little: nothing is counted before all are attached. A symbol without a release is
 * in all of OpenZFS 2.1.0 to 2.4.4; a release comes with the commit that brought it.
 */
static const struct probe_def fsync_probes[] = {
	{ .name = "zil_commit",
	  /* 2.4.0 and later: every path goes through zil_commit_flags (391e85f519) */
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit",
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zil_commit:return",
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit_return",
	  .returns = true,
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zpl_fsync",
	  .symbols = { "zpl_fsync" },
	  .program = "zpl_fsync",
	  .cost = "no `writeback`; fsyncs are known by their ZIL commit only, with sync=disabled "
		  "not at all" },
	{ .name = "zpl_fsync:return",
	  .symbols = { "zpl_fsync" },
	  .program = "zpl_fsync_return",
	  .returns = true,
	  .cost = "as zpl_fsync" },
	{ .name = "zil_async_to_sync:return",
	  .symbols = { "zil_async_to_sync" },
	  .program = "async_to_sync_return",
	  .returns = true,
	  .required = true,
	  .cost = "ZIL commits cannot be told from early exits" },
	{ .name = "dmu_tx_wait",
	  .symbols = { "dmu_tx_wait" },
	  .program = "tx_wait",
	  .merges = { "tx_assign", "issue" } },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .cost = "all that follows a throttle wait is part of `tx_assign`" },
	/* Linux 5.19 and later */
	{ .name = "lock:contention_begin",
	  .symbols = { "contention_begin" },
	  .program = "contention_begin",
	  .tracepoint = true,
	  .merges = { "issuer_lock", "issue" } },
	{ .name = "lock:contention_end",
	  .symbols = { "contention_end" },
	  .program = "contention_end",
	  .tracepoint = true,
	  .cost = "`issue` after a lock wait is part of `issuer_lock`" },
	{ .name = "zil_lwb_write_issue",
	  .symbols = { "zil_lwb_write_issue" },
	  .program = "write_issue",
	  .cost = "`issue` after a batch wait is part of `batch_wait`" },
	{ .name = "zil_lwb_add_block",
	  .symbols = { "zil_lwb_add_block" },
	  .program = "add_block",
	  .required = true,
	  .cost = "log blocks cannot be followed" },
	{ .name = "zil_lwb_write_done",
	  .symbols = { "zil_lwb_write_done" },
	  .program = "write_done",
	  .merges = { "flush", "log_write" } },
	{ .name = "zil_lwb_flush_vdevs_done",
	  .symbols = { "zil_lwb_flush_vdevs_done" },
	  .program = "flush_done",
	  .merges = { "wakeup", "flush" } },
	{ .name = "cv_wait",
	  .symbols = { "__cv_wait" },
	  .program = "cv_wait",
	  .kernel = "prepare_to_wait_exclusive", /* both are made of it */
	  .stand_in = "prepare_to_wait",
	  .required = true,
	  .cost = "waiting cannot be told from issuing" },
	{ .name = "cv_timedwait",
	  .symbols = { "cv_timedwait_hires" },
	  .program = "cv_timedwait",
	  .kernel = "prepare_to_wait_exclusive",
	  .merges = { "batch_wait", "issue" } },
	{ .name = "txg_wait_synced",
	  /* 2.3.3 and later: every path goes through txg_wait_synced_flags (a7de203c86) */
	  .symbols = { "txg_wait_synced_flags", "txg_wait_synced" },
	  .program = "txg_wait",
	  .merges = { "txg_fallback", "issue", "other" } },
	{ .name = "zil_free",
	  .symbols = { "zil_free" },
	  .program = "zil_free",
	  .stays = true,
	  .cost = "after an export a new dataset may be counted under an old name; what is no "
		  "longer in use keeps its room" },
	{ .name = "zpl_kill_sb",
	  .symbols = { "zpl_kill_sb" },
	  .program = "kill_sb",
	  .stays = true,
	  .cost = "after an unmount a new dataset with sync=disabled may be counted under an old "
		  "name; what is no longer in use keeps its room" },
};

static const struct map_def fsync_maps[] = {
	{ "slots", sizeof(struct slot), .per_slot = true, .writable = true },
	{ "slot_data", sizeof(struct slot_data), .per_slot = true, .per_cpu = true,
	  .writable = true },
	{ "free_slots", sizeof(struct free_slots), .writable = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};
_Static_assert(sizeof(struct slot) % 8 == 0 && sizeof(struct slot_data) % 8 == 0 &&
		       sizeof(struct free_slots) % 8 == 0,
	       "the kernel pads entries to 8 bytes");
_Static_assert(sizeof(struct counters) % 64 == 0, "CPUs share a cache line");

static const struct probe_def commit_probes[] = {
	{ .name = "zil_commit",
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit",
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zil_commit:return",
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit_return",
	  .returns = true,
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zil_lwb_add_block",
	  .symbols = { "zil_lwb_add_block" },
	  .program = "add_block",
	  .cost = "log blocks are not timed" },
	{ .name = "zil_lwb_write_done",
	  .symbols = { "zil_lwb_write_done" },
	  .program = "write_done",
	  .cost = "log blocks are not timed" },
	{ .name = "zil_lwb_flush_vdevs_done",
	  .symbols = { "zil_lwb_flush_vdevs_done" },
	  .program = "flush_done",
	  .cost = "log blocks are not timed" },
	{ .name = "zil_free",
	  .symbols = { "zil_free" },
	  .program = "zil_free",
	  .stays = true,
	  .cost = "after an export a new dataset may be counted under an old name; what is no "
		  "longer in use keeps its room" },
};

static const struct map_def commit_maps[] = {
	{ "slots", sizeof(struct slot), .per_slot = true, .writable = true },
	{ "slot_data", sizeof(struct commit_data), .per_slot = true, .per_cpu = true,
	  .writable = true },
	{ "free_slots", sizeof(struct free_slots), .writable = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};
_Static_assert(sizeof(struct commit_data) % 8 == 0, "the kernel pads entries to 8 bytes");

static const struct probe_def read_probes[] = {
	{ .name = "zpl_iter_read",
	  .symbols = { "zpl_iter_read" },
	  .program = "iter_read",
	  .required = true,
	  .cost = "reads cannot be timed (--source kstat counts them)" },
	{ .name = "zpl_iter_read:return",
	  .symbols = { "zpl_iter_read" },
	  .program = "iter_read_return",
	  .returns = true,
	  .required = true,
	  .cost = "reads cannot be timed (--source kstat counts them)" },
	{ .name = "zpl_iter_write",
	  .symbols = { "zpl_iter_write" },
	  .program = "iter_write",
	  .cost = "writes are not timed" },
	{ .name = "zpl_iter_write:return",
	  .symbols = { "zpl_iter_write" },
	  .program = "iter_write_return",
	  .returns = true,
	  .cost = "writes are not timed" },
	{ .name = "cv_timedwait_io",
	  .symbols = { "__cv_timedwait_io" },
	  .program = "io_wait",
	  .required = true,
	  .cost = "reads that waited for an I/O cannot be told (--source kstat shows the ARC)" },
	{ .name = "cv_wait",
	  .symbols = { "__cv_wait" },
	  .program = "cv_wait",
	  .cost = "reads that waited for the I/O of another thread count as hits" },
	{ .name = "dmu_tx_wait",
	  .symbols = { "dmu_tx_wait" },
	  .program = "tx_wait",
	  .cost = "writes that were held up are not counted" },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .cost = "writes that were held up are not counted" },
	{ .name = "zpl_kill_sb",
	  .symbols = { "zpl_kill_sb" },
	  .program = "kill_sb",
	  .stays = true,
	  .cost = "after an unmount a new dataset may be counted under an old name; what is no "
		  "longer in use keeps its room" },
};

static const struct map_def read_maps[] = {
	{ "slots", sizeof(struct slot), .per_slot = true, .writable = true },
	{ "slot_data", sizeof(struct read_data), .per_slot = true, .per_cpu = true,
	  .writable = true },
	{ "free_slots", sizeof(struct free_slots), .writable = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};

static const struct probe_def txg_probes[] = {
	{ .name = "txg__opened",
	  .symbols = { "trace_zfs_txg__opened" },
	  .program = "opened",
	  .cost = "how long a txg was open is not known" },
	{ .name = "txg__quiescing",
	  .symbols = { "trace_zfs_txg__quiescing" },
	  .program = "quiescing",
	  .cost = "neither open nor quiesce times nor reasons" },
	{ .name = "txg__quiesced",
	  .symbols = { "trace_zfs_txg__quiesced" },
	  .program = "quiesced",
	  .cost = "neither quiesce nor wait times" },
	{ .name = "txg__syncing",
	  .symbols = { "trace_zfs_txg__syncing" },
	  .program = "syncing",
	  .required = true,
	  .cost = "txgs cannot be followed (--source kstat can)" },
	{ .name = "txg__synced",
	  .symbols = { "trace_zfs_txg__synced" },
	  .program = "synced",
	  .required = true,
	  .cost = "txgs cannot be followed (--source kstat can)" },
	{ .name = "dsl_pool_sync",
	  .symbols = { "dsl_pool_sync", "trace_zfs_dsl_pool_sync__done" },
	  .program = "pass",
	  .cost = "passes are not counted" },
	{ .name = "zil_sync",
	  .symbols = { "zil_sync" },
	  .program = "zil_sync",
	  .cost = "the share of zil_sync is not known" },
	{ .name = "zil_sync:return",
	  .symbols = { "zil_sync" },
	  .program = "zil_sync_return",
	  .returns = true,
	  .cost = "the share of zil_sync is not known" },
	{ .name = "txg_kick",
	  .symbols = { "txg_kick" },
	  .program = "kick",
	  .cost = "reason `dirty` is `unknown`" },
	{ .name = "txg_wait_synced",
	  .symbols = { "txg_wait_synced_flags", "txg_wait_synced" },
	  .program = "wait_synced",
	  .cost = "reason `waiter` is `unknown`" },
	{ .name = "txg_wait_open",
	  .symbols = { "txg_wait_open" },
	  .program = "wait_open",
	  .cost = "reason `waiter` is at times `unknown`" },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .cost = "delayed transactions are not counted" },
};

static const struct map_def counters_map[] = {
	{ "counters", sizeof(struct counters), .per_cpu = true },
};

static const struct probe_def throttle_probes[] = {
	{ .name = "dmu_tx_wait",
	  .symbols = { "dmu_tx_wait" },
	  .program = "tx_wait",
	  .required = true,
	  .cost = "waits cannot be timed" },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .required = true,
	  .cost = "waits cannot be timed" },
	{ .name = "delay__mintime",
	  .symbols = { "trace_zfs_delay__mintime" },
	  .program = "delay",
	  .cost = "log data cannot be told from dirty data" },
};

static const struct map_def throttle_maps[] = {
	{ "waiters", sizeof(struct zfstrace_waiter), .per_slot = true, .writable = true },
	{ "free_slots", sizeof(struct free_slots), .writable = true },
	{ "params", sizeof(struct zfstrace_throttle_params), .writable = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};
_Static_assert(sizeof(struct zfstrace_waiter) % 8 == 0 && sizeof(struct zfstrace_vdev) % 8 == 0,
	       "the kernel pads entries to 8 bytes");

static const struct probe_def device_probes[] = {
	{ .name = "zio_vdev_io_assess",
	  .symbols = { "zio_vdev_io_assess" },
	  .program = "io_assess",
	  .required = true,
	  .cost = "I/Os cannot be timed" },
	{ .name = "vdev_disk_io_start",
	  .symbols = { "vdev_disk_io_start" },
	  .program = "io_start",
	  .cost = "cache flushes are not timed" },
};

static const struct map_def device_maps[] = {
	{ "vdevs", sizeof(struct zfstrace_vdev), .per_slot = true },
	{ "free_slots", sizeof(struct free_slots), .writable = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};

static const struct probe_def arc_probes[] = {
	{ .name = "arc__wait__for__eviction",
	  .symbols = { "trace_zfs_arc__wait__for__eviction" },
	  .program = "evict_wait",
	  .required = true,
	  .cost = "waits for eviction cannot be timed (--source kstat shows the rest)" },
	{ .name = "arc_wait_for_eviction:return",
	  .symbols = { "arc_wait_for_eviction" },
	  .program = "evict_wait_return",
	  .returns = true,
	  .required = true,
	  .cost = "waits for eviction cannot be timed (--source kstat shows the rest)" },
};

static const struct map_def arc_maps[] = {
	{ .name = "arc", .entry_bytes = sizeof(struct zfstrace_arc) },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};

static const struct probe_def stacks_probes[] = {
	{ .name = "sched:sched_switch",
	  .symbols = { "sched_switch" },
	  .program = "sched_switch",
	  .tracepoint = true,
	  .modes = ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_WAKEUP,
	  .required = true,
	  .cost = "nobody is seen to sleep" },
	{ .name = "sched:sched_waking",
	  .symbols = { "sched_waking" },
	  .program = "sched_waking",
	  .tracepoint = true,
	  .modes = ZFSTRACE_STACKS_WAKEUP,
	  .required = true,
	  .cost = "wakers are not seen" },
	{ .name = "cpu-clock",
	  .symbols = { "cpu-clock" },
	  .program = "sample",
	  .hz = STACKS_HZ,
	  .modes = ZFSTRACE_STACKS_ON_CPU,
	  .required = true,
	  .cost = "no samples" },
	{ .name = "txg__syncing",
	  .symbols = { "trace_zfs_txg__syncing" },
	  .program = "txg_syncing",
	  .modes = ZFSTRACE_STACKS_OF_TXG_SYNC | ZFSTRACE_STACKS_OF_ALL,
	  .cost = "threads that sync a txg are not known" },
	{ .name = "txg__synced",
	  .symbols = { "trace_zfs_txg__synced" },
	  .program = "txg_synced",
	  .modes = ZFSTRACE_STACKS_OF_TXG_SYNC | ZFSTRACE_STACKS_OF_ALL,
	  .cost = "waiting for the next txg counts as syncing" },
};

static const struct map_def stacks_maps[] = {
	{ .name = "stack_losses", .entry_bytes = sizeof(struct stack_losses) },
};
_Static_assert(sizeof(struct stack_losses) % 8 == 0, "the kernel pads entries to 8 bytes");

/* An entry of "slot_data": distributions, then counts. */
#define SUMS(type, first)                                                                          \
	.hists = sizeof(((type *)0)->hist) / sizeof(struct small_hist),                            \
	.counts = (sizeof(type) - sizeof(((type *)0)->hist)) / sizeof(uint64_t),                   \
	.first_hist = (first), .begin = datasets_begin, .refresh = datasets_refresh,               \
	.tidy = datasets_tidy, .free = datasets_free
#define OBJECT(id) .object = zfstrace_##id##_object, .object_end = zfstrace_##id##_object_end
#define PROBES(id) .probes = id##_probes, .probe_count = ARRAY_SIZE(id##_probes)
#define MAPS(id) .maps = id##_maps, .map_count = ARRAY_SIZE(id##_maps)

/* object.c */
extern const char zfstrace_fsync_object[], zfstrace_fsync_object_end[];
extern const char zfstrace_commit_object[], zfstrace_commit_object_end[];
extern const char zfstrace_read_object[], zfstrace_read_object_end[];
extern const char zfstrace_txg_object[], zfstrace_txg_object_end[];
extern const char zfstrace_throttle_object[], zfstrace_throttle_object_end[];
extern const char zfstrace_device_object[], zfstrace_device_object_end[];
extern const char zfstrace_arc_object[], zfstrace_arc_object_end[];
extern const char zfstrace_stacks_object[], zfstrace_stacks_object_end[];

const struct tracer_def tracer_defs[] = {
	{ "fsync", OBJECT(fsync), PROBES(fsync), MAPS(fsync), .ring = "slow_events", .slots = 33,
	  SUMS(struct slot_data, STAGE_TOTAL), .wholes = 1, .pauses = true },
	{ "txg", OBJECT(txg), PROBES(txg), .maps = counters_map, .map_count = 1, .ring = "events",
	  .ring_bytes = 1 << 18 },
	{ "throttle", OBJECT(throttle), PROBES(throttle), MAPS(throttle), .slots = 256 },
	{ "device", OBJECT(device), PROBES(device), MAPS(device), .slots = 64 },
	{ "arc", OBJECT(arc), PROBES(arc), MAPS(arc) },
	{ "stacks", OBJECT(stacks), PROBES(stacks), MAPS(stacks),
	  .base = &tracer_defs[0], /* fsync */
	  .base_modes = ZFSTRACE_STACKS_OF_FSYNC | ZFSTRACE_STACKS_OF_PID | ZFSTRACE_STACKS_OF_ALL,
	  .shared = { "op_places", "op_storage", "lwbs" } },
	{ "read", OBJECT(read), PROBES(read), MAPS(read), .slots = 33,
	  SUMS(struct read_data, READ_HIT), .wholes = READ_OPS },
	{ "commit", OBJECT(commit), PROBES(commit), MAPS(commit), .ring = "slow_events",
	  .slots = 33, SUMS(struct commit_data, COMMIT_TOTAL), .wholes = 1 },
};
const unsigned int tracer_count = ARRAY_SIZE(tracer_defs);

const struct tracer_def *tracer_find(const char *name)
{
	for (unsigned int i = 0; i < tracer_count; i++)
		if (strcmp(tracer_defs[i].name, name) == 0)
			return &tracer_defs[i];
	return NULL;
}

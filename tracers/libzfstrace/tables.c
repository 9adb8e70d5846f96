// SPDX-License-Identifier: BSD-2-Clause
/* The tracers: their probes, what the absence of a probe costs, their maps. */
#include <string.h>

#include "../bpf/fsync.h"
#include "internal.h"

/* Order matters little: nothing is counted before all are attached. */
static const struct probe_def fsync_probes[] = {
	{ .name = "zil_commit",
	  /* from 2.4 every path goes through zil_commit_flags (commit by 2.4.0) */
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
	{ .name = "zfs_fsync",
	  .symbols = { "zfs_fsync" },
	  .program = "zfs_fsync",
	  .cost = "`writeback` includes entering the file system" },
	{ .name = "zil_async_to_sync:return",
	  .symbols = { "zil_async_to_sync" },
	  .program = "async_to_sync_return",
	  .returns = true,
	  .required = true,
	  .cost = "ZIL commits cannot be told from early exits" },
	{ .name = "dmu_tx_wait",
	  .symbols = { "dmu_tx_wait" },
	  .program = "tx_wait",
	  .cost = "`tx_assign` is part of `issue`" },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .cost = "all that follows a throttle wait is part of `tx_assign`" },
	{ .name = "lock:contention_begin",
	  .symbols = { "contention_begin" },
	  .program = "contention_begin",
	  .tracepoint = true,
	  .cost = "`issuer_lock` is part of `issue`" },
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
	  .cost = "`flush` is part of `log_write`" },
	{ .name = "zil_lwb_flush_vdevs_done",
	  .symbols = { "zil_lwb_flush_vdevs_done" },
	  .program = "flush_done",
	  .cost = "`wakeup` is part of `flush`" },
	{ .name = "cv_wait",
	  .symbols = { "__cv_wait" },
	  .program = "cv_wait",
	  .required = true,
	  .cost = "waiting cannot be told from issuing" },
	{ .name = "cv_timedwait",
	  .symbols = { "cv_timedwait_hires" },
	  .program = "cv_timedwait",
	  .cost = "`batch_wait` is part of `issue`" },
	{ .name = "txg_wait_synced",
	  .symbols = { "txg_wait_synced_flags", "txg_wait_synced" },
	  .program = "txg_wait",
	  .cost = "`txg_fallback` is part of `issue` or `other`" },
	{ .name = "zil_free",
	  .symbols = { "zil_free" },
	  .program = "zil_free",
	  .cost = "after an export a new dataset may be counted under an old name" },
};

static const struct map_def fsync_maps[] = {
	{ "slots", sizeof(struct slot), .per_slot = true },
	{ "slot_data", sizeof(struct slot_data), .per_slot = true, .per_cpu = true },
	{ "counters", sizeof(struct counters), .per_cpu = true },
};
_Static_assert(sizeof(struct slot) % 8 == 0 && sizeof(struct slot_data) % 8 == 0 &&
		       sizeof(struct counters) % 8 == 0,
	       "the kernel pads entries to 8 bytes");

#define OBJECT(id) .object = zfstrace_##id##_object, .object_end = zfstrace_##id##_object_end
#define PROBES(id) .probes = id##_probes, .probe_count = ARRAY_SIZE(id##_probes)
#define MAPS(id) .maps = id##_maps, .map_count = ARRAY_SIZE(id##_maps)

/* object.c */
extern const char zfstrace_fsync_object[], zfstrace_fsync_object_end[];

const struct tracer_def tracer_defs[] = {
	{ "fsync", OBJECT(fsync), PROBES(fsync), MAPS(fsync), .ring = "slow_events", .slots = 33 },
};
const unsigned int tracer_count = ARRAY_SIZE(tracer_defs);

const struct tracer_def *tracer_find(const char *name)
{
	for (unsigned int i = 0; i < tracer_count; i++)
		if (strcmp(tracer_defs[i].name, name) == 0)
			return &tracer_defs[i];
	return NULL;
}

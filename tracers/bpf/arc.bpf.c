// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times waits for ARC eviction: arc_wait_for_eviction() calls a stub only when
 * it is going to wait (module/zfs/arc.c).
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "trace.h"
#include "config.bpf.h"
#include "hist.bpf.h"
#include "probe.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* tid */
	__type(value, __u64);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct zfstrace_arc);
} arc SEC(".maps");

static __always_inline void on_evict_wait(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	if (!enabled)
		return;
	if (bpf_map_update_elem(&starts, &tid, &now, BPF_ANY))
		COUNT(lost_start);
	else
		COUNT(started);
}
AT_ENTRY(evict_wait, (__u64 amount), ())

static __always_inline void on_evict_wait_return(void)
{
	__u32 tid = bpf_get_current_pid_tgid(), zero = 0;
	__u64 *start = bpf_map_lookup_elem(&starts, &tid);
	struct zfstrace_arc *table;

	if (!start)
		return;
	table = bpf_map_lookup_elem(&arc, &zero);
	if (table)
		hist_add(&table->waits, bpf_ktime_get_ns() - *start);
	bpf_map_delete_elem(&starts, &tid);
	COUNT(finished);
}
AT_RETURN(evict_wait_return)

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times every synchronous operation of OpenZFS, stage by stage.
 *
 * A thread inside an operation is always in exactly one stage. Probes on its
 * path switch the stage; the time since the last switch goes to the stage that
 * ends, so the stages sum to the total by construction. While the thread waits
 * for its log block (lwb), other threads issue, write and flush the block.
 * Their timestamps split the wait when it ends.
 *
 * Every probe exists twice, as fentry/fexit and as kprobe/kretprobe, around
 * one function on_*(); libzfstrace loads the one this kernel can attach.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "fsync.h"
#include "config.bpf.h"
#include "dirty.bpf.h"
#include "file.bpf.h"
#include "hist.bpf.h"
#include "layout.bpf.h"
#include "op.bpf.h"
#include "probe.bpf.h"
#include "zilog.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LCB_F_MUTEX (1U << 5) /* include/trace/events/lock.h */
#define LLONG_MAX 0x7fffffffffffffffLL

/* Locks at most this far into a zilog_t are its own (zl_issuer_lock is at
 * 200-250 in every build seen; the structure has over 1 KiB). */
#define ZILOG_SPAN 1024
/* A cv is a commit waiter's when its mutex follows it this closely:
 * zil_commit_waiter_t begins zcw_cv, zcw_lock; other structures put the lock
 * first. kcondvar_t has 72 bytes without lock debugging. */
#define ZCW_LOCK_MAX 160

/* [lane][slot]; libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_data);
} slot_data SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} slow_events SEC(".maps");

/* When counting began, again after a pause: what a thread was in before that has been counted as
 * cut. It is no loss, and no part of what comes later. */
__u64 resumed SEC(".data.resumed") = 0;

/* ---- operations and stages ---------------------------------------------- */

static __always_inline struct op *op_in_commit(void)
{
	struct op *op = op_here();

	return op && op->in_commit ? op : 0;
}

/* What is found where an operation begins has not been left: what follows is no part of it. */
static __always_inline void op_drop(void)
{
	struct op *op = op_here();

	if (!op)
		return;
	if (op->start >= resumed)
		COUNT(lost_return);
	op->active = 0;
	op_leave(op);
}

static __always_inline struct op *op_begin(__u64 now)
{
	struct task_struct *me;
	struct op *op;
	bool left;

	if (!enabled || (config.pid && config.pid != bpf_get_current_pid_tgid() >> 32)) {
		op_drop();
		return 0;
	}
	me = bpf_get_current_task_btf();
	op = op_take(me, &left);
	if (!op) {
		COUNT(lost_start);
		return 0;
	}
	if (!left && op->start >= resumed)
		COUNT(lost_return);
	__builtin_memset(&op->start, 0, offsetof(struct op, known) - offsetof(struct op, start));
	op->active = 1;
	op->tid = me->pid;
	op->start = op->since = now;
	op->cur = STAGE_OTHER;
	op->slot = NO_SLOT;
	COUNT(started);
	return op;
}

/* Splits the wait that began at op->since by the progress of the log block. */
static __always_inline void end_wait(struct op *op, __u64 now, bool final)
{
	__u64 from = op->since;
	struct lwb_times t;

	if (!op->lwb) { /* on no block: zil_clean() ends the wait after a txg sync */
		op->stage_ns[STAGE_TXG_FALLBACK] += now - from;
		return;
	}
	/* the block may be done a moment before its waiter sleeps: then that was not for long */
	if (!lwb_cut(op, from, now, final ? op->commit_start : from, &t)) {
		if (final) {
			op->stage_ns[STAGE_OTHER] += now - from;
			COUNT(lost_lwb);
		} else {
			op->stage_ns[STAGE_BATCH_WAIT] += now - from;
		}
		return;
	}
	op->stage_ns[STAGE_BATCH_WAIT] += t.issued - from;
	op->stage_ns[STAGE_LOG_WRITE] += t.written - t.issued;
	op->stage_ns[STAGE_FLUSH] += t.flushed - t.written;
	op->stage_ns[STAGE_WAKEUP] += now - t.flushed;
}

static __always_inline void advance(struct op *op, __u64 now, bool final)
{
	__u32 cur = op->cur;

	barrier_var(cur);
	if (cur == CUR_WAIT)
		end_wait(op, now, final);
	else if (cur < STAGE_COUNT)
		op->stage_ns[cur] += now - op->since;
	op->since = now;
}

static __always_inline void enter(struct op *op, __u8 stage)
{
	advance(op, bpf_ktime_get_ns(), false);
	op->cur = stage;
}

static __always_inline __u8 kind_of(const struct op *op)
{
	struct task_struct *task;
	char comm[ZFSTRACE_COMM_LEN] = {};

	if (op->in_fsync)
		return op->kind;
	task = (struct task_struct *)op->place.task;
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD) {
		bpf_get_current_comm(comm, sizeof(comm));
		if (comm[0] == 'z' && comm[1] == 'v' && comm[2] == 'o' && comm[3] == 'l')
			return KIND_ZVOL;
		return KIND_OTHER;
	}
	return op->object ? KIND_O_SYNC : KIND_OTHER;
}

static __always_inline void report_slow(const struct op *op, __u64 total, __u8 kind, __u32 life)
{
	struct slow_event *e = bpf_ringbuf_reserve(&slow_events, sizeof(*e), 0);
	__u64 id = bpf_get_current_pid_tgid();

	if (!e) {
		COUNT(lost_event);
		return;
	}
	e->start_ns = op->start;
	e->total_ns = total;
	__builtin_memcpy(e->stage_ns, op->stage_ns, sizeof(e->stage_ns));
	e->dirty_bytes = op->zilog ? pool_dirty(zilog_pool(op->zilog)) : 0;
	e->object = op->file ? file_object(op->file) : op->object;
	e->slot = op->slot;
	e->life = life;
	e->pid = id >> 32;
	e->tid = (__u32)id;
	e->kind = kind;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_ringbuf_submit(e, 0);
}

static __always_inline void op_count(struct op *op, __u64 now, bool error)
{
	struct slot_data *data;
	struct slot *s;
	__u64 total;
	__u32 slot, kind, index;

	if (op->start < resumed)
		return;
	advance(op, now, true);
	COUNT(finished);
	if (op->slot == NO_SLOT)
		op->slot = slot_again(&op->known, 0, op->file);
	slot = op->slot;
	if (slot == SLOT_UNWANTED)
		return;
	index = slot_entry(slot);
	s = bpf_map_lookup_elem(&slots, &slot);
	data = bpf_map_lookup_elem(&slot_data, &index);
	if (!s || !data)
		return;
	if (!slot) {
		COUNT(slots_overflow);
		/* the rest does not distinguish pools */
		if (config.pool[0])
			return;
	} else if (!s->dev && op->file) {
		s->dev = file_dev(op->file);
	}
	if (!slot_wanted(s, s->dev))
		return;
	kind = kind_of(op);
	total = now - op->start;
	if (op->commits)
		ADD(data->commits, op->commits);
	else
		ADD(data->no_zil, 1);
	if (error)
		ADD(data->errors, 1);
	barrier_var(kind); /* keeps check and use in one register for the verifier */
	if (kind < KIND_COUNT)
		ADD(data->kind[kind], 1);
	hist_add(&data->hist[STAGE_TOTAL], total);
	for (int i = 0; i < STAGE_COUNT; i++)
		if (op->stage_ns[i])
			hist_add(&data->hist[i], op->stage_ns[i]);
	if (config.slow_ns && total >= config.slow_ns)
		report_slow(op, total, kind, s->life);
}

static __always_inline void op_end(struct op *op, __u64 now, bool error)
{
	op->active = 0;
	op_count(op, now, error);
	op_leave(op);
}

/* ---- probes ------------------------------------------------------------- */

/* Pages of a file have first to be written to ZFS, which is seldom the case: only mmap(2) leaves
 * any behind. What follows until the commit belongs to the writeback then. */
static __always_inline void on_zpl_fsync(bool typed, struct file *file, __s64 start, __s64 end,
					 int datasync)
{
	struct op *op = op_begin(bpf_ktime_get_ns());

	if (!op)
		return;
	op->in_fsync = 1;
	if (typed ? file->f_mapping->nrpages : BPF_CORE_READ(file, f_mapping, nrpages))
		op->cur = STAGE_WRITEBACK;
	if (!datasync)
		op->kind = KIND_FSYNC;
	else if (start == 0 && end == LLONG_MAX)
		op->kind = KIND_FDATASYNC;
	else
		op->kind = KIND_MSYNC;
	op->file = (__u64)file;
}
AT_TYPED_ENTRY(zpl_fsync, (struct file * file, __s64 start, __s64 end, int datasync), file, start,
	       end, datasync)

static __always_inline void on_zpl_fsync_return(int error)
{
	struct op *op = op_here();

	if (!op || !op->in_fsync)
		return;
	if (op->cur == STAGE_WRITEBACK && op->commits) /* after the last commit, not its own */
		op->cur = STAGE_OTHER;
	op_end(op, bpf_ktime_get_ns(), error < 0);
}

AT_RESULT(zpl_fsync_return, (struct file * file, __s64 start, __s64 end, int datasync), int value)

static __always_inline void on_zil_commit(__u64 zilog, __u64 foid)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct op *op = op_of((__u64)me, me);
	__u64 now = bpf_ktime_get_ns();

	/* it may have ended in the pause, or be that of a thread which has ended */
	if (op && (op->start < resumed || op->tid != (__u32)me->pid))
		op = 0;
	if (op && op->in_commit) {
		/* zil_commit does not nest: its return was missed. Outside an
		 * fsync that was the operation's end, and op_begin() counts it. */
		op->in_commit = 0;
		if (!op->in_fsync)
			op = 0;
	}
	/* an fsync commits its own file and no other: the return of this one was missed */
	if (op && op->object && op->object != foid)
		op = 0;
	if (!op) {
		op = op_begin(now);
		if (!op)
			return;
	}
	op->object = foid;
	advance(op, now, false);
	op->outer = op->cur;
	op->cur = STAGE_ASYNC_TO_SYNC;
	op->in_commit = 1;
	op->reached_impl = 0;
	op->zilog = zilog;
	op->commit_start = now;
	op->slot = slot_again(&op->known, zilog, op->file);
}
AT_ENTRY(zil_commit, (__u64 zilog, __u64 foid), (zilog, foid))

static __always_inline void on_zil_commit_return(void)
{
	struct op *op = op_in_commit();
	__u64 now;

	if (!op)
		return;
	now = bpf_ktime_get_ns();
	/* left before zil_commit_impl (sync=disabled): that was no stage */
	if (!op->reached_impl && op->cur == STAGE_ASYNC_TO_SYNC)
		op->cur = STAGE_OTHER;
	op->in_commit = 0;
	if (!op->in_fsync) {
		op_end(op, now, false);
		return;
	}
	advance(op, now, true);
	op->cur = op->outer;
}
AT_RETURN(zil_commit_return)

static __always_inline void on_async_to_sync_return(void)
{
	struct op *op = op_in_commit();

	if (!op || op->reached_impl)
		return;
	enter(op, STAGE_ISSUE);
	op->reached_impl = 1;
	op->commits++;
}
AT_RETURN(async_to_sync_return)

/* dmu_tx_wait is reached only when a transaction cannot be assigned at once. */
static __always_inline void on_tx_wait(void)
{
	struct op *op = op_in_commit();

	if (!op || op->cur == STAGE_TX_ASSIGN)
		return;
	op->before = op->cur;
	enter(op, STAGE_TX_ASSIGN);
}
AT_ENTRY(tx_wait, (void *tx), ())

static __always_inline void on_tx_waited(void)
{
	struct op *op = op_in_commit();

	if (op && op->cur == STAGE_TX_ASSIGN)
		enter(op, op->before);
}
AT_ENTRY(tx_waited, (void *spa), ())

static __always_inline void on_write_issue(void)
{
	struct op *op = op_in_commit();

	if (op && op->cur == CUR_WAIT)
		enter(op, STAGE_ISSUE);
}
AT_ENTRY(write_issue, (void *zilog), ())

/* Called for every block that a log block refers to; the one inside the lwb_t
 * (after lwb_zilog) is the log block itself, added when it is issued. */
static __always_inline void on_add_block(__u64 lwb, __u64 bp)
{
	if (bp != lwb + 8)
		return;
	lwb_issue(lwb, bpf_ktime_get_ns());
	if (!bpf_core_field_exists(((struct zilog *)0)->zl_os))
		learn_objset(lwb);
}
AT_ENTRY(add_block, (__u64 lwb, __u64 bp), (lwb, bp))

static __always_inline void on_write_done(bool typed, struct zio *zio)
{
	struct lwb_times *t = lwb_find(zio_lwb(zio, typed));

	if (t)
		t->written = bpf_ktime_get_ns();
}
AT_TYPED_ENTRY(write_done, (struct zio * zio), zio)

static __always_inline void on_flush_done(bool typed, struct zio *zio)
{
	struct lwb_times *t = lwb_find(zio_lwb(zio, typed));

	if (t)
		t->flushed = bpf_ktime_get_ns();
}
AT_TYPED_ENTRY(flush_done, (struct zio * zio), zio)

static __always_inline bool of_waiter(__u64 cv, __u64 lock)
{
	return lock > cv && lock - cv <= ZCW_LOCK_MAX;
}

static __always_inline void begin_wait(struct op *op, __u64 cv, __u64 lock)
{
	if (op->cur == STAGE_TX_ASSIGN)
		return;
	advance(op, bpf_ktime_get_ns(), false);
	op->lwb = zcw_lwb(cv, lock, op->zilog);
	op->cur = CUR_WAIT;
}

static __always_inline void on_cv_wait(__u64 cv, __u64 lock)
{
	struct op *op = of_waiter(cv, lock) ? op_in_commit() : 0;

	if (op)
		begin_wait(op, cv, lock);
}
AT_ENTRY(cv_wait, (__u64 cv, __u64 lock), (cv, lock))

static __always_inline void on_cv_timedwait(__u64 cv, __u64 lock)
{
	on_cv_wait(cv, lock);
}
AT_ENTRY(cv_timedwait, (__u64 cv, __u64 lock), (cv, lock))

static __always_inline void on_txg_wait(void)
{
	struct op *op = op_in_commit();

	if (!op || op->cur == STAGE_TX_ASSIGN)
		return;
	if (!op->reached_impl && op->cur == STAGE_ASYNC_TO_SYNC)
		op->cur = STAGE_OTHER;
	enter(op, STAGE_TXG_FALLBACK);
}
AT_ENTRY(txg_wait, (void *dp), ())

static __always_inline void on_zil_free(__u64 zilog)
{
	struct slot_key key = { .ptr = zilog };

	slot_forget(&key);
}
AT_ENTRY(zil_free, (__u64 zilog), (zilog))

static __always_inline void on_kill_sb(__u64 sb)
{
	slot_forget_sb(sb);
}
AT_ENTRY(kill_sb, (__u64 sb), (sb))

/* ---- functions of the kernel, for a module without BTF -------------------
 *
 * An fentry program for one of these costs a third of a kprobe.
 */

/* What waiting for a cv is made of: kcondvar_t has an int, its queue, another, two counters and the
 * mutex (include/os/linux/spl/sys/condvar.h, 2.1.0 to 2.4.4). */
SEC("fentry")
int BPF_PROG(fentry_prepare_to_wait, __u64 queue)
{
	struct op *op = op_in_commit();
	__u64 cv, lock;

	if (!op)
		return 0;
	/* a copy is a number: the verifier lets no program subtract a pointer from one */
	cv = read_u64((__u64)&queue) - 8;
	lock = read_u64(cv + 8 + 2 * bpf_core_type_size(struct wait_queue_head) + 8);
	if (of_waiter(cv, lock))
		begin_wait(op, cv, lock);
	return 0;
}

/* A mutex of the ZIL itself, during a commit. */
SEC("tp_btf/contention_begin")
int BPF_PROG(tp_contention_begin, void *lock, unsigned int flags)
{
	struct op *op;

	if (!(flags & LCB_F_MUTEX))
		return 0;
	op = op_in_commit();
	if (!op || (op->cur != STAGE_ISSUE && op->cur != CUR_WAIT) ||
	    (__u64)lock - op->zilog >= ZILOG_SPAN)
		return 0;
	enter(op, STAGE_ISSUER_LOCK);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(tp_contention_end, void *lock)
{
	struct op *op = op_in_commit();

	if (op && op->cur == STAGE_ISSUER_LOCK && (__u64)lock - op->zilog < ZILOG_SPAN)
		enter(op, STAGE_ISSUE);
	return 0;
}

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times every read(2) and write(2) of a file, in zpl_iter_read() and zpl_iter_write()
 * (module/os/linux/zfs/zpl_file.c), and tells reads that waited for an I/O from those that did
 * not.
 *
 * A hit takes a microsecond and there may be millions a second. So the way of a hit has two
 * programs with one look at the thread's storage each, which remembers the dataset of the last
 * operation; nothing is sent. What tells a miss is on the way of those that wait only.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "read.h"
#include "config.bpf.h"
#include "file.bpf.h"
#include "hist.bpf.h"
#include "pool.bpf.h"
#include "probe.bpf.h"
#include "slots.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A cv is that of a buffer being read if it follows its mutex this closely: db_mtx, db_changed
 * (dbuf.h), acb_wait_lock, acb_wait_cv (arc_impl.h). The cvs of range locks and transactions are
 * elsewhere than their mutexes, or before them. */
#define BUFFER_CV_MAX 192

/* [lane][slot]; libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct read_data);
} slot_data SEC(".maps");

enum { IDLE, READING, WRITING };

struct io {
	__u64 start;
	__u64 file;
	__u64 held_since; /* in a wait of its transaction, else 0 */
	__u64 held_ns;
	struct known known;
	__u8 doing;
	__u8 waited; /* for an I/O */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct io);
} ios SEC(".maps");

/* Where a zfsvfs_t has z_os, found without BTF; 0 = not yet. */
unsigned int off_z_os;

/* The objset_t of a mounted file system. Without BTF: the word of its zfsvfs_t that points to a
 * pointer and, after it, one to a spa_t (all of 2.1 to 2.4). */
static __always_inline __u64 sb_objset(__u64 sb)
{
	__u64 fs = (__u64)BPF_CORE_READ((struct super_block *)sb, s_fs_info);
	struct zfsvfs *z = (struct zfsvfs *)fs;

	if (bpf_core_field_exists(z->z_os))
		return (__u64)BPF_CORE_READ(z, z_os);
	for (int off = 8; off <= 64 && !off_z_os; off += 8)
		if (is_spa(read_u64(read_u64(fs + off) + 8)))
			off_z_os = off;
	return off_z_os ? read_u64(fs + off_z_os) : 0;
}

static __always_inline bool slot_fill(struct slot *s, __u64 zilog, __u64 file)
{
	struct objset *os = (struct objset *)sb_objset(file_sb(file));
	struct dsl_dataset *ds = 0;
	__u64 spa;

	s->dev = file_dev(file);
	if (bpf_core_field_exists(os->os_spa) && bpf_core_field_exists(ds->ds_object)) {
		spa = (__u64)BPF_CORE_READ(os, os_spa);
		s->objset = BPF_CORE_READ(os, os_dsl_dataset, ds_object);
	} else {
		spa = os ? read_u64((__u64)os + 8) : 0;
	}
	if (is_spa(spa))
		bpf_probe_read_kernel_str(s->pool, sizeof(s->pool), (void *)spa);
	return slot_wanted(s, s->dev);
}

static __always_inline struct io *io_get(void)
{
	return bpf_task_storage_get(&ios, bpf_get_current_task_btf(), 0, 0);
}

static __always_inline void io_begin(__u64 kiocb, __u8 doing)
{
	struct io *io;

	if (!enabled || (config.pid && config.pid != bpf_get_current_pid_tgid() >> 32))
		return;
	io = bpf_task_storage_get(&ios, bpf_get_current_task_btf(), 0,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!io) {
		COUNT(lost_start);
		return;
	}
	if (io->doing)
		COUNT(lost_return);
	io->file = (__u64)BPF_CORE_READ((struct kiocb *)kiocb, ki_filp);
	io->held_since = io->held_ns = 0;
	io->waited = 0;
	io->doing = doing;
	COUNT(started);
	io->start = bpf_ktime_get_ns();
}

static __always_inline void add_data(struct io *io, __u32 op, __u64 ns, __s64 bytes)
{
	__u32 slot = slot_again(&io->known, 0, io->file), index;
	struct read_data *data;

	if (slot == SLOT_UNWANTED)
		return;
	if (!slot)
		COUNT(slots_overflow);
	index = slot_entry(slot);
	data = bpf_map_lookup_elem(&slot_data, &index);
	/* the rest does not distinguish pools */
	if (!data || (!slot && config.pool[0]))
		return;
	if (bytes < 0) {
		ADD(data->errors, 1);
		return;
	}
	if (io->held_ns) {
		ADD(data->held, 1);
		ADD(data->held_ns, io->held_ns);
	}
	barrier_var(op);
	if (op >= READ_OPS)
		return;
	ADD(data->bytes[op], bytes);
	hist_add(&data->hist[op], ns);
}

/* bytes: as returned; without any it was the end of the file, and nothing. */
static __always_inline void io_end(__s64 bytes, __u8 doing)
{
	struct io *io = io_get();
	__u64 ns;
	__u32 op;

	if (!io || io->doing != doing)
		return;
	ns = bpf_ktime_get_ns() - io->start;
	io->doing = IDLE;
	COUNT(finished);
	if (!bytes)
		return;
	op = doing == WRITING ? READ_WRITE : io->waited ? READ_MISS : READ_HIT;
	add_data(io, op, ns, bytes);
}

/* ---- probes ------------------------------------------------------------- */

static __always_inline void on_iter_read(__u64 kiocb)
{
	io_begin(kiocb, READING);
}
AT_ENTRY(iter_read, (__u64 kiocb), (kiocb))

static __always_inline void on_iter_read_return(__s64 bytes)
{
	io_end(bytes, READING);
}
AT_RESULT(iter_read_return, (__u64 kiocb, __u64 iter), __s64 value)

static __always_inline void on_iter_write(__u64 kiocb)
{
	io_begin(kiocb, WRITING);
}
AT_ENTRY(iter_write, (__u64 kiocb), (kiocb))

static __always_inline void on_iter_write_return(__s64 bytes)
{
	io_end(bytes, WRITING);
}
AT_RESULT(iter_write_return, (__u64 kiocb, __u64 iter), __s64 value)

/* zio_wait() calls it only if the I/O is not done yet. */
static __always_inline void on_io_wait(void)
{
	struct io *io = io_get();

	if (io)
		io->waited = 1;
}
AT_ENTRY(io_wait, (__u64 cv, __u64 lock), ())

/* For a buffer that another thread reads. */
static __always_inline void on_cv_wait(__u64 cv, __u64 lock)
{
	if (cv > lock && cv - lock <= BUFFER_CV_MAX)
		on_io_wait();
}
AT_ENTRY(cv_wait, (__u64 cv, __u64 lock), (cv, lock))

static __always_inline void on_tx_wait(void)
{
	struct io *io = io_get();

	if (io && io->doing == WRITING && !io->held_since)
		io->held_since = bpf_ktime_get_ns();
}
AT_ENTRY(tx_wait, (void *tx), ())

static __always_inline void on_tx_waited(void)
{
	struct io *io = io_get();

	if (!io || !io->held_since)
		return;
	io->held_ns += bpf_ktime_get_ns() - io->held_since;
	io->held_since = 0;
}
AT_ENTRY(tx_waited, (void *spa), ())

static __always_inline void on_kill_sb(__u64 sb)
{
	slot_forget_sb(sb);
}
AT_ENTRY(kill_sb, (__u64 sb), (sb))

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * BPF programs as functions of a user program: takes the place of libbpf's header
 * in tests/unit/test_bpf*.c. The kernel's part in it is shim_*().
 */
#ifndef ZFSTUNE_BPF_SHIM_H
#define ZFSTUNE_BPF_SHIM_H

#include <stddef.h>
#include <linux/types.h>

#define SEC(name)
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define __noinline __attribute__((noinline))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define barrier_var(var) ((void)0)

struct task_struct;
enum { LOOKUP, UPDATE, DELETE };

/* A map is known by its definition: type, key, value, max_entries. */
void *shim_map(int op, void *map, int type, size_t key, size_t value, unsigned int max,
	       const void *at, const void *what, __u64 flags);
/* Instead of the definition's. */
void shim_size(void *map, unsigned int max_entries);
void *shim_storage(struct task_struct *task, size_t bytes, int create);
void *shim_reserve(size_t bytes);
long shim_read(void *to, unsigned int bytes, const void *from);
struct task_struct *shim_task(void);
long shim_walk(void *to);

/* What the test sets, and reads. */
extern __u64 shim_now, shim_tgid, shim_tid;
extern unsigned int shim_cpu, shim_reads;
extern __u64 shim_stack, shim_walk_ns; /* what is found, the only frame, and in what time */
extern int shim_btf, shim_full;	       /* no memory for a thread's storage */

#define SHIM_MAP(op, map, key_, value_, flags)                                                     \
	shim_map(op, map, sizeof(*(map)->type) / sizeof(int), sizeof(*(map)->key),                 \
		 sizeof(*(map)->value), sizeof(*(map)->max_entries) / sizeof(int), key_, value_,   \
		 flags)
#define bpf_map_lookup_elem(map, key) SHIM_MAP(LOOKUP, map, key, 0, 0)
#define bpf_map_update_elem(map, key, value, flags) ((long)SHIM_MAP(UPDATE, map, key, value, flags))
#define bpf_map_delete_elem(map, key) ((long)SHIM_MAP(DELETE, map, key, 0, 0))
#define bpf_task_storage_get(map, task, init, flags)                                               \
	shim_storage(task, sizeof(*(map)->value), (flags) & BPF_LOCAL_STORAGE_GET_F_CREATE)
#define bpf_ringbuf_reserve(map, bytes, flags) shim_reserve(bytes)
#define bpf_ringbuf_submit(event, flags) ((void)(event))
#define bpf_ktime_get_ns() (shim_now += 100)
#define bpf_get_smp_processor_id() shim_cpu
#define bpf_get_current_pid_tgid() (shim_tgid << 32 | shim_tid)
#define bpf_get_current_comm(to, bytes) __builtin_memcpy(to, "shim", 5)
#define bpf_get_current_task_btf() shim_task()
#define bpf_get_current_task() ((unsigned long)shim_task())
#define bpf_get_stack(context, to, bytes, flags) shim_walk(to)
#define bpf_get_task_stack(task, to, bytes, flags) shim_walk(to)
#define bpf_probe_read_kernel(to, bytes, from) shim_read(to, bytes, from)
#define bpf_probe_read_kernel_str(to, bytes, from) shim_read(to, bytes, from)

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CO-RE views of the few kernel and OpenZFS structures the tracer reads: only
 * the members that are used, offsets filled in by libbpf from BTF. For a
 * module without BTF the views of ZFS do not resolve; every use of them is
 * guarded by bpf_core_field_exists() and has a search beside it.
 */
#ifndef ZFSTRACE_BPF_ZFS_VIEWS_H
#define ZFSTRACE_BPF_ZFS_VIEWS_H

#define VIEW __attribute__((preserve_access_index))

struct super_block {
	unsigned int s_dev;
} VIEW;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} VIEW;

struct file {
	struct inode *f_inode;
} VIEW;

struct task_struct {
	unsigned int flags;
} VIEW;

/* OpenZFS: include/sys/zil_impl.h, zio.h, dmu_objset.h, dsl_dataset.h. */
struct dsl_dataset {
	unsigned long long ds_object;
} VIEW;

struct objset {
	struct dsl_dataset *os_dsl_dataset;
} VIEW;

struct zilog {
	void *zl_spa;
	struct objset *zl_os;
} VIEW;

struct zil_commit_waiter {
	void *zcw_lwb;
} VIEW;

struct zio {
	void *io_private;
} VIEW;

#endif

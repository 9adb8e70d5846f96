/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CO-RE views of the few kernel and OpenZFS structures that are read: only the
 * members in use; libbpf fills in the offsets from BTF. For a module without
 * BTF the views of ZFS do not resolve; every use of them is guarded by
 * bpf_core_field_exists() and has a search beside it.
 */
#ifndef ZFSTRACE_BPF_ZFS_VIEWS_H
#define ZFSTRACE_BPF_ZFS_VIEWS_H

#define VIEW __attribute__((preserve_access_index))

/* A member of a structure. Programs attached by BTF know the types of a function's arguments, and
 * read their members directly; others have to ask the kernel to. */
#define MEMBER(typed, pointer, member)                                                             \
	((typed) ? (pointer)->member : BPF_CORE_READ(pointer, member))

struct super_block {
	unsigned int s_dev;
	void *s_fs_info;
} VIEW;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} VIEW;

struct address_space {
	unsigned long nrpages;
} VIEW;

struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
} VIEW;

/* Only its size is used. */
struct wait_queue_head {
	int lock;
} VIEW;

struct kiocb {
	struct file *ki_filp;
} VIEW;

struct task_struct {
	unsigned int flags;
	int pid; /* of the thread */
	int tgid;
	char comm[16];
} VIEW;

struct spa;

/* OpenZFS: include/sys/zil_impl.h, zio.h, dmu_objset.h, dsl_dataset.h ... */
struct dsl_dataset {
	unsigned long long ds_object;
} VIEW;

struct objset {
	struct dsl_dataset *os_dsl_dataset;
	struct spa *os_spa;
} VIEW;

/* os/linux/zfs/sys/zfs_vfsops_os.h: s_fs_info of a superblock */
struct zfsvfs {
	struct objset *z_os;
} VIEW;

struct zilog {
	void *zl_dmu_pool;
	void *zl_spa;
	struct objset *zl_os;
} VIEW;

struct zil_commit_waiter {
	void *zcw_lwb;
} VIEW;

struct vdev;

/* CO-RE matches an enum only with an enum, an anonymous one with any. */
typedef enum { VIEW_ENUM } view_enum;

struct zio {
	void *io_private;
	view_enum io_type;     /* zio_type_t */
	view_enum io_priority; /* zio_priority_t */
	unsigned long long io_size;
	struct vdev *io_vd;
	long long io_delta; /* in the vdev's queue and at the device, ns */
	long long io_delay; /* at the device, ns */
} VIEW;

/* vdev_impl.h: the I/Os at the device by priority. Until 2.2.0 (8469b5aac0)
 * each class has a struct that begins with its count. */
struct vdev_queue_class {
	unsigned int vqc_active;
} VIEW;

struct vdev_queue {
	struct vdev_queue_class vq_class[9];
	unsigned int vq_cactive[9]; /* 2.2.0 and later */
} VIEW;

struct vdev {
	unsigned long long vdev_guid;
	struct spa *vdev_spa;
	struct vdev *vdev_top;
	struct vdev_queue vdev_queue;
} VIEW;

/* dmu_tx.h, dsl_pool.h */
struct dsl_pool {
	unsigned long long dp_dirty_total;
} VIEW;

struct dmu_tx {
	struct dsl_pool *tx_pool;
	view_enum tx_wait_dirty; /* boolean_t */
} VIEW;

#endif

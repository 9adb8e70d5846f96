/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a struct file to its file system and object. */
#ifndef ZFSTRACE_BPF_FILE_H
#define ZFSTRACE_BPF_FILE_H

#include "zfs_views.h"

static __always_inline __u64 file_sb(__u64 file)
{
	return (__u64)BPF_CORE_READ((struct file *)file, f_inode, i_sb);
}

static __always_inline __u32 file_dev(__u64 file)
{
	return BPF_CORE_READ((struct file *)file, f_inode, i_sb, s_dev);
}

static __always_inline __u64 file_object(__u64 file)
{
	return BPF_CORE_READ((struct file *)file, f_inode, i_ino);
}

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a thread remembers of the dataset of its last operation; see slot_again(). */
#ifndef ZFSTRACE_BPF_KNOWN_H
#define ZFSTRACE_BPF_KNOWN_H

struct known {
	__u64 dataset; /* a zilog or a superblock */
	__u32 slot;    /* 0: not known */
	__u32 forgets; /* at that time */
};

#endif

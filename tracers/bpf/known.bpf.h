/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a thread, or the place it is in (places.bpf.h), remembers of the dataset of the last
 * operation; see slot_again(). It is true of whatever thread. */
#ifndef ZFSTRACE_BPF_KNOWN_H
#define ZFSTRACE_BPF_KNOWN_H

struct known {
	__u64 dataset; /* a zilog or a superblock */
	__u32 slot;    /* 0: not known */
	__u32 forgets; /* at that time */
};

#endif

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The slots of datasets that commit. */
#ifndef ZFSTRACE_BPF_ZILOG_H
#define ZFSTRACE_BPF_ZILOG_H

#include "layout.bpf.h"
#include "slots.bpf.h"

static __always_inline bool slot_fill(struct slot *s, __u64 zilog, __u64 file)
{
	s->dev = file ? file_dev(file) : 0;
	if (zilog) {
		__u64 spa = zilog_spa(zilog);

		s->objset = zilog_objset(zilog);
		if (spa)
			bpf_probe_read_kernel_str(s->pool, sizeof(s->pool), (void *)spa);
	}
	return slot_wanted(s, s->dev);
}

/* Without BTF the first log block has the dataset of its zilog: the third word
 * of its checksum (ZIL_ZC_OBJSET), an on-disk format. Read only while there is
 * a slot that needs it. */
static __always_inline void learn_objset(__u64 lwb)
{
	struct slot_key key = {};
	struct slot *s;
	__u32 *slot;

	if (!nameless)
		return;
	key.ptr = read_u64(lwb);
	slot = bpf_map_lookup_elem(&slot_index, &key);
	s = slot ? bpf_map_lookup_elem(&slots, slot) : 0;
	if (s && !s->objset && !__sync_val_compare_and_swap(&s->objset, 0, read_u64(lwb + 120)) &&
	    s->objset)
		__sync_fetch_and_add(&nameless, -1);
}

#endif

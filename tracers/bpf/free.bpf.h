/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The free entries of a table: programs take them, user space gives them back. */
#ifndef ZFSTRACE_BPF_FREE_H
#define ZFSTRACE_BPF_FREE_H

#include "trace.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct free_slots);
} free_slots SEC(".maps");

/* A slot that was taken and not used, as slot_take() returns it; 0 = none. */
__u64 spare_slot;

static __always_inline bool slot_is_free(void)
{
	__u32 zero = 0;
	struct free_slots *f = bpf_map_lookup_elem(&free_slots, &zero);

	return spare_slot || (f && f->taken != f->given);
}

/* life << 32 | slot; 0 = none free. */
static __always_inline __u64 slot_take(void)
{
	struct free_slots *f;
	__u64 found = spare_slot;
	__u32 zero = 0;

	if (found && __sync_val_compare_and_swap(&spare_slot, found, 0) == found)
		return found;
	f = bpf_map_lookup_elem(&free_slots, &zero);
	for (int i = 0; f && i < 4; i++) {
		__u64 at = f->taken;

		if (at == f->given)
			return 0;
		if (__sync_val_compare_and_swap(&f->taken, at, at + 1) == at)
			return (at + 1) << 32 | f->slot[at % SLOTS_MAX];
	}
	return 0;
}

/* False if there is a spare one already: then user space must give it back. */
static __always_inline bool slot_put_back(__u64 taken)
{
	return !__sync_val_compare_and_swap(&spare_slot, 0, taken);
}

#endif

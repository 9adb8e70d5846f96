/* SPDX-License-Identifier: BSD-2-Clause */
/* As bpf_helpers.h beside it: structures are as their views are. */
#ifndef ZFSTUNE_BPF_SHIM_CORE_H
#define ZFSTUNE_BPF_SHIM_CORE_H

#include "bpf_helpers.h"

#define SHIM_PICK(a, b, c, d, n, ...) n
#define SHIM_READ1(p, a)                                                                           \
	({                                                                                         \
		typeof((p)->a) v_;                                                                 \
		shim_read(&v_, sizeof(v_), (char *)(p) + offsetof(typeof(*(p)), a));               \
		v_;                                                                                \
	})
#define SHIM_READ2(p, a, b) SHIM_READ1(SHIM_READ1(p, a), b)
#define SHIM_READ3(p, a, b, c) SHIM_READ1(SHIM_READ2(p, a, b), c)
#define BPF_CORE_READ(p, ...)                                                                      \
	SHIM_PICK(__VA_ARGS__, 0, SHIM_READ3, SHIM_READ2, SHIM_READ1)(p, __VA_ARGS__)
#define bpf_core_field_exists(field) shim_btf
#define bpf_core_type_size(type) sizeof(type)

#endif

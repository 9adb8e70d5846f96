/* SPDX-License-Identifier: BSD-2-Clause */
/* As bpf_helpers.h beside it: a program is a function of its arguments. */
#ifndef ZFSTUNE_BPF_SHIM_TRACING_H
#define ZFSTUNE_BPF_SHIM_TRACING_H

#define BPF_PROG(name, args...) name(void *ctx, ##args)
#define BPF_KPROBE(name, args...) name(void *ctx, ##args)
#define BPF_KRETPROBE(name, args...) name(void *ctx, ##args)

#endif

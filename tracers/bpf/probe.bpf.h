/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Defines the two programs of a probe around one function. */
#ifndef ZFSTRACE_BPF_PROBE_H
#define ZFSTRACE_BPF_PROBE_H

#include "config.bpf.h"

#define EXPAND(...) __VA_ARGS__
/* fentry_ID and kprobe_ID for on_ID; proto and args are parenthesised lists. */
#define AT_ENTRY(id, proto, args)                                                                  \
	SEC("fentry")                                                                              \
	int BPF_PROG(fentry_##id, EXPAND proto)                                                    \
	{                                                                                          \
		if (TURN(COUNT_FENTRY))                                                            \
			on_##id args;                                                              \
		return 0;                                                                          \
	}                                                                                          \
	SEC("kprobe")                                                                              \
	int BPF_KPROBE(kprobe_##id, EXPAND proto)                                                  \
	{                                                                                          \
		if (TURN(COUNT_KPROBE))                                                            \
			on_##id args;                                                              \
		return 0;                                                                          \
	}

/* The same where on_ID first takes whether it is called with typed arguments; see MEMBER(). */
#define AT_TYPED_ENTRY(id, proto, ...)                                                             \
	SEC("fentry")                                                                              \
	int BPF_PROG(fentry_##id, EXPAND proto)                                                    \
	{                                                                                          \
		if (TURN(COUNT_FENTRY))                                                            \
			on_##id(true, __VA_ARGS__);                                                \
		return 0;                                                                          \
	}                                                                                          \
	SEC("kprobe")                                                                              \
	int BPF_KPROBE(kprobe_##id, EXPAND proto)                                                  \
	{                                                                                          \
		if (TURN(COUNT_KPROBE))                                                            \
			on_##id(false, __VA_ARGS__);                                               \
		return 0;                                                                          \
	}

/* Return probes that do not look at the value. */
#define AT_RETURN(id)                                                                              \
	SEC("fexit")                                                                               \
	int BPF_PROG(fentry_##id)                                                                  \
	{                                                                                          \
		if (TURN(COUNT_FENTRY))                                                            \
			on_##id();                                                                 \
		return 0;                                                                          \
	}                                                                                          \
	SEC("kretprobe")                                                                           \
	int BPF_KRETPROBE(kprobe_##id)                                                             \
	{                                                                                          \
		if (TURN(COUNT_KPROBE))                                                            \
			on_##id();                                                                 \
		return 0;                                                                          \
	}

/* Return probes that do; proto has the function's parameters and then the result. */
#define AT_RESULT(id, proto, result)                                                               \
	SEC("fexit")                                                                               \
	int BPF_PROG(fentry_##id, EXPAND proto, result)                                            \
	{                                                                                          \
		if (TURN(COUNT_FENTRY))                                                            \
			on_##id(value);                                                            \
		return 0;                                                                          \
	}                                                                                          \
	SEC("kretprobe")                                                                           \
	int BPF_KRETPROBE(kprobe_##id, result)                                                     \
	{                                                                                          \
		if (TURN(COUNT_KPROBE))                                                            \
			on_##id(value);                                                            \
		return 0;                                                                          \
	}

#endif

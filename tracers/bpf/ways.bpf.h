/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Tables by the address of an object, in sets of a few places. An array's element is found by a few
 * instructions in place, where a hash map takes calls of the kernel.
 */
#ifndef ZFSTRACE_BPF_WAYS_H
#define ZFSTRACE_BPF_WAYS_H

#define WAYS 4

/* The set of an address, of 2^bits, by its lower half. That is copied first: the verifier lets no
 * program shift a pointer, but takes a copy of half of one for a number. */
static __always_inline __u32 set_of(__u64 address, __u32 bits)
{
	__u32 half = address;

#ifdef __bpf__
	asm volatile("%0 = %1" : "=w"(half) : "w"(half));
#endif
	return (half >> 6) * 0x9e3779b1U >> (32 - bits);
}

#endif

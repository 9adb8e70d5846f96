// SPDX-License-Identifier: BSD-2-Clause
/*
 * Embeds the compiled BPF programs. Not a bpftool skeleton: its arrays have the
 * layout of the libbpf it was generated with, and one library must run with
 * every libbpf from 1.1 on.
 */
#define EMBED(id)                                                                                  \
	__asm__(".section .rodata\n"                                                               \
		".balign 8\n"                                                                      \
		".globl zfstrace_" #id "_object\n"                                                 \
		".hidden zfstrace_" #id "_object\n"                                                \
		"zfstrace_" #id "_object:\n"                                                       \
		".incbin \"" BPF_DIR "/" #id ".bpf.o\"\n"                                          \
		".globl zfstrace_" #id "_object_end\n"                                             \
		".hidden zfstrace_" #id "_object_end\n"                                            \
		"zfstrace_" #id "_object_end:\n"                                                   \
		".previous\n")

EMBED(fsync);
EMBED(txg);
EMBED(throttle);
EMBED(device);
EMBED(arc);
EMBED(stacks);
EMBED(read);
EMBED(commit);

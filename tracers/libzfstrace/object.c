// SPDX-License-Identifier: BSD-2-Clause
/*
 * The compiled BPF programs inside the library. Not a bpftool skeleton: its
 * arrays have the layout of the libbpf it was made with, and one library must
 * run with every libbpf from 1.1 on.
 */
__asm__(".section .rodata\n"
	".balign 8\n"
	".globl zfstrace_fsync_object\n"
	".hidden zfstrace_fsync_object\n"
	"zfstrace_fsync_object:\n"
	".incbin \"" FSYNC_OBJECT "\"\n"
	".globl zfstrace_fsync_object_end\n"
	".hidden zfstrace_fsync_object_end\n"
	"zfstrace_fsync_object_end:\n"
	".previous\n");

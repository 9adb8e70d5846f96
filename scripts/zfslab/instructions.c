// SPDX-License-Identifier: BSD-2-Clause
/*
 * A plugin of QEMU's emulation that counts the instructions of a guest, by block of code. Programs
 * in the guest say when: each time one of them executes a mark, NOPL with an address of its own,
 * what ran since the last mark is written to two files. A block that an exception leaves in its
 * middle counts whole.
 *
 * Distributions ship QEMU without qemu-plugin.h, so what is used of it is declared here: version 3
 * of its interface, which QEMU has had since 9.1 (include/qemu/qemu-plugin.h).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define BLOCKS (1U << 20) /* a power of two; a guest executes some 200,000 */

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64 entry);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb,
						       enum qemu_plugin_op op,
						       qemu_plugin_u64 entry, uint64_t n);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int cpu, void *data),
					    enum qemu_plugin_cb_flags flags, void *data);

EXPORT int qemu_plugin_version = 3;

/* nopl 0x7a6c62NN(%rax): NN is the mark's number */
static const uint8_t mark_code[] = { 0x0f, 0x1f, 0x80 }, mark_address[] = { 0x62, 0x6c, 0x7a };
#define MARK_BYTES 7
/* call rel32 */
#define CALL_CODE 0xe8
#define CALL_BYTES 5

/* By the address and number of its instructions: programs that have different code at the same
 * address share one. `calls` is the function that its last instruction calls directly, if any. */
static struct block {
	uint64_t address, instructions, before, calls;
	qemu_plugin_u64 executed;
} blocks[BLOCKS];

static FILE *marks, *profile;

static struct block *find_block(uint64_t address, uint64_t instructions)
{
	uint64_t at = (address * 31 + instructions) * 0x9e3779b97f4a7c15ULL >> 44;

	for (unsigned int i = 0; i < BLOCKS; i++, at++) {
		struct block *b = &blocks[at & (BLOCKS - 1)];

		if (!b->instructions) {
			b->address = address;
			b->instructions = instructions;
			b->executed.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
		}
		if (b->address == address && b->instructions == instructions)
			return b;
	}
	fprintf(stderr, "instructions: more than %u blocks of code\n", BLOCKS);
	exit(1);
}

static void on_mark(unsigned int cpu, void *number)
{
	uint64_t sum = 0;

	(void)cpu;
	for (struct block *b = blocks; b < blocks + BLOCKS; b++) {
		uint64_t now, n;

		if (!b->instructions)
			continue;
		now = qemu_plugin_u64_sum(b->executed);
		n = now - b->before;
		b->before = now;
		sum += n;
		if (n)
			fprintf(profile, "%u %llx %llu %llu %llx\n",
				(unsigned int)(uintptr_t)number, (unsigned long long)b->address,
				(unsigned long long)n, (unsigned long long)(n / b->instructions),
				(unsigned long long)b->calls);
	}
	fprintf(marks, "%u %llu\n", (unsigned int)(uintptr_t)number, (unsigned long long)sum);
	fflush(marks); /* QEMU is killed in the end */
	fflush(profile);
}

/* What an instruction calls directly; 0: nothing. */
static uint64_t called(const struct qemu_plugin_insn *insn)
{
	uint8_t code[CALL_BYTES];
	int32_t offset;

	if (qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) || code[0] != CALL_CODE)
		return 0;
	memcpy(&offset, code + 1, sizeof(offset));
	return qemu_plugin_insn_vaddr(insn) + CALL_BYTES + (uint64_t)(int64_t)offset;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b = find_block(qemu_plugin_tb_vaddr(tb), n);

	(void)id;
	b->calls = called(qemu_plugin_tb_get_insn(tb, n - 1));
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  b->executed, n);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t code[MARK_BYTES];

		if (qemu_plugin_insn_data(insn, code, sizeof(code)) == sizeof(code) &&
		    !memcmp(code, mark_code, sizeof(mark_code)) &&
		    !memcmp(code + sizeof(mark_code) + 1, mark_address, sizeof(mark_address)))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
				(void *)(uintptr_t)code[sizeof(mark_code)]);
	}
}

/* Arguments: marks=FILE and blocks=FILE. */
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "marks=", 6))
			marks = fopen(argv[i] + 6, "w");
		else if (!strncmp(argv[i], "blocks=", 7))
			profile = fopen(argv[i] + 7, "w");
	}
	if (!marks || !profile) {
		perror("instructions: cannot write its files");
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Recognizes dp_dirty_total among the words of a dsl_pool_t. Pure, for the unit
 * tests, too. */
#ifndef ZFSTRACE_BPF_DIRTY_TOTAL_H
#define ZFSTRACE_BPF_DIRTY_TOTAL_H

/* A window of words: the one in question, four before it and three after it. */
#define DIRTY_WORDS 8
#define DIRTY_TOTAL 4

/*
 * Whether w[DIRTY_TOTAL] is dp_dirty_total: nearly the sum of the four words before
 * it, dp_dirty_pertxg[] (include/sys/dsl_pool.h, 2.1 to 2.4), all of which change
 * while they are read. The last two of those four may look like it when one txg has
 * as much as the previous one: the condition variable in front of them ends in 1 and
 * 0 while nobody waits. But the total follows them, which is not less than they are;
 * after the total comes what frees have dirtied in each txg, usually 0.
 */
static inline __attribute__((always_inline)) int is_dirty_total(const unsigned long long *w)
{
	unsigned long long total = w[DIRTY_TOTAL], sum = w[0] + w[1] + w[2] + w[3];

	/* too large for a count, and not an address */
	if (total < 1 << 16 || total >> 48 || sum + total / 16 - total > total / 8)
		return 0;
	for (int n = DIRTY_TOTAL + 1; n < DIRTY_WORDS; n++)
		if (w[n] >= total)
			return 0;
	return 1;
}

#endif

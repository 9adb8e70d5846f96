/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How dp_dirty_total is known among the words of a dsl_pool_t. Pure: for the unit
 * tests as well. */
#ifndef ZFSTRACE_BPF_DIRTY_TOTAL_H
#define ZFSTRACE_BPF_DIRTY_TOTAL_H

/* What is looked at: the word in question, four before it and three after it. */
#define DIRTY_WORDS 8
#define DIRTY_TOTAL 4

/*
 * Whether w[DIRTY_TOTAL] is dp_dirty_total: nearly the sum of the four words before
 * it, dp_dirty_pertxg[] (include/sys/dsl_pool.h, 2.1 to 2.4), all of which change
 * while they are read. The last two of those four may look like it, when one txg has
 * as much as the one before: the condition variable in front of them ends in 1 and 0
 * while nobody waits. They have the total after them, which is not less than they
 * are; after the total is what frees have dirtied in each txg, 0 as a rule.
 */
static inline __attribute__((always_inline)) int is_dirty_total(const unsigned long long *w)
{
	unsigned long long total = w[DIRTY_TOTAL], sum = w[0] + w[1] + w[2] + w[3];

	/* enough of it not to be a count, and not an address */
	if (total < 1 << 16 || total >> 48 || sum + total / 16 - total > total / 8)
		return 0;
	for (int n = DIRTY_TOTAL + 1; n < DIRTY_WORDS; n++)
		if (w[n] >= total)
			return 0;
	return 1;
}

#endif

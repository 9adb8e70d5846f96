// SPDX-License-Identifier: BSD-2-Clause
/* The log-linear histogram in user space; tracers/zfstrace/hist.py is its twin. */
#include "internal.h"

_Static_assert(ZFSTRACE_HIST_BUCKETS == (HIST_MAX_BITS - HIST_SUB_BITS + 1) * HIST_SUB,
	       "ZFSTRACE_HIST_BUCKETS does not match the shape");

unsigned int zfstrace_hist_index(uint64_t value)
{
	unsigned int shift;

	if (value < 2 * HIST_SUB)
		return (unsigned int)value;
	if (value >> HIST_MAX_BITS)
		return ZFSTRACE_HIST_BUCKETS - 1;
	shift = 63 - (unsigned int)__builtin_clzll(value) - HIST_SUB_BITS;
	return (shift << HIST_SUB_BITS) + (unsigned int)(value >> shift);
}

uint64_t zfstrace_hist_low(unsigned int index)
{
	unsigned int shift;

	if (index < 2 * HIST_SUB)
		return index;
	if (index >= ZFSTRACE_HIST_BUCKETS)
		return 1ULL << HIST_MAX_BITS;
	shift = (index >> HIST_SUB_BITS) - 1;
	return (uint64_t)((index & (HIST_SUB - 1)) + HIST_SUB) << shift;
}

void zfstrace_hist_copy(struct zfstrace_hist *to, const struct zfstrace_table_hist *from)
{
	to->sum_ns = from->sum_ns;
	to->max_ns = from->max_ns;
	to->count = 0;
	for (unsigned int i = 0; i < ZFSTRACE_HIST_BUCKETS; i++) {
		to->bucket[i] = from->bucket[i];
		to->count += to->bucket[i];
	}
}

uint64_t zfstrace_hist_quantile(const struct zfstrace_hist *h, unsigned int permille)
{
	uint64_t rank, before = 0, value;
	unsigned int i;

	if (h->count == 0)
		return 0;
	rank = (uint64_t)(((unsigned __int128)h->count * permille + 999) / 1000);
	if (rank == 0)
		rank = 1;
	for (i = 0; i < ZFSTRACE_HIST_BUCKETS; i++) {
		uint64_t n = h->bucket[i], low;

		if (before + n < rank) {
			before += n;
			continue;
		}
		low = zfstrace_hist_low(i);
		value = low + (uint64_t)((unsigned __int128)(zfstrace_hist_low(i + 1) - low) *
					 (rank - before) / n);
		return value < h->max_ns ? value : h->max_ns;
	}
	return h->max_ns;
}

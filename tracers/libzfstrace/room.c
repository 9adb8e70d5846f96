// SPDX-License-Identifier: BSD-2-Clause
/* How much kernel memory the tables of a session take. */
#include <stdlib.h>

#include "../bpf/fsync.h"
#include "internal.h"

/* The limit for one session that asks for none, however many CPUs and datasets there are. */
#define TABLE_MIB 256
/* Up to this many slots take precedence over lanes: CPUs that share a lane lose time, but no
 * count. */
#define LEAST_SLOTS 33

struct trace_room room_of(const struct tracer_def *def, unsigned int wanted, unsigned int cpus,
			  unsigned int mib)
{
	size_t bytes = (size_t)(mib ? mib : TABLE_MIB) << 20;
	size_t least = wanted < LEAST_SLOTS ? wanted : LEAST_SLOTS, slot = 0, lane = 0, lanes,
	       slots;

	for (unsigned int i = 0; i < def->map_count; i++)
		if (def->maps[i].per_slot)
			*(def->maps[i].per_cpu ? &lane : &slot) += def->maps[i].entry_bytes;
	lanes = lane && least ? (bytes / least - slot) / lane : cpus;
	lanes = lanes > cpus ? cpus : lanes;
	lanes = lanes ? lanes : 1;
	slots = slot + lane ? bytes / (slot + lanes * lane) : wanted;
	slots = slots > SLOTS_MAX ? SLOTS_MAX : slots;
	slots = slots > wanted ? wanted : slots;
	return (struct trace_room) { (unsigned int)slots, (unsigned int)lanes };
}

/* One more than the last number of a list like "0-3,8-11", 0 when it has none. */
unsigned int room_cpus(const char *online)
{
	unsigned long last = 0;
	bool found = false;

	while (*online) {
		char *end;

		if (*online < '0' || *online > '9') {
			online++;
			continue;
		}
		last = strtoul(online, &end, 10);
		found = true;
		online = end;
	}
	return found && last < 1U << 20 ? (unsigned int)last + 1 : 0;
}

void room_give(const struct zfstrace *t, unsigned int slot)
{
	struct free_slots *f = maps_find(t, "free_slots");

	f->slot[f->given % SLOTS_MAX] = slot;
	__atomic_store_n(&f->given, f->given + 1, __ATOMIC_RELEASE);
}

void room_begin(const struct zfstrace *t)
{
	for (unsigned int i = 1; maps_find(t, "free_slots") && i < t->config.slots; i++)
		room_give(t, i);
}

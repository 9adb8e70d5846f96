// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of throttle waits: reuses the entries of processes that have ended. */
#include <errno.h>
#include <string.h>

#include "../bpf/throttle.h"
#include "internal.h"

int zfstrace_release(struct zfstrace *t, unsigned int i)
{
	struct zfstrace_waiter *w = maps_find(t, "waiters");
	struct waiter_key key = {};

	if (!w || !i || i >= t->config.slots || !w[i].used)
		return fail(t, -EINVAL, "cannot release waiter %u: not in use", i);
	key.spa = w[i].spa;
	key.pid = w[i].pid;
	(void)bpf_map_delete_elem(maps_fd(t, "waiter_index"), &key);
	memset(&w[i], 0, sizeof(w[i]));
	room_give(t, i);
	return 0;
}

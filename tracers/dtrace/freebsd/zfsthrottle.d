#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zfsthrottle.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * zfsthrottle.d  Which writers wait for a transaction group of OpenZFS, or are delayed by its write
 *                throttle, and how long; with the dirty data at each delay.
 *
 * USAGE: zfsthrottle.d [POOL [MIN_US]]
 *
 * Waits shorter than MIN_US are left out. See zfsthrottle.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option aggsize=4m
#pragma D option dynvarsize=1m
#pragma D option strsize=64

inline string WANTED = $$1;
inline uint64_t MIN_US = $2;

dtrace:::BEGIN
{
	printf("Tracing waits for a txg and delays of writes... Hit Ctrl-C to end.\n");
	@waits = sum(0);
	@delays = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/*
 * The end of every dmu_tx_wait(), in the thread that waited: (spa_t *, uint64_t ns). A spa_t begins
 * with the pool's name, in every version.
 */
fbt:zfs:spa_tx_assign_add_nsecs:entry
/(WANTED == "" || WANTED == stringof((char *)arg0)) && arg1 >= MIN_US * 1000/
{
	@wait_us[stringof((char *)arg0)] = quantize(arg1 / 1000);
	@wait_count[stringof((char *)arg0), execname, pid] = count();
	@wait_avg[stringof((char *)arg0), execname, pid] = avg(arg1 / 1000);
	@wait_max[stringof((char *)arg0), execname, pid] = max(arg1 / 1000);
	@wait_sum[stringof((char *)arg0), execname, pid] = sum(arg1 / 1000);
	@waits = sum(1);
}

/* (dmu_tx_t *, uint64_t dirty, uint64_t ns), when a writer is about to sleep. */
sdt:::delay-mintime
{
	@dirty_mib = quantize(arg1 >> 20);
	@delay_count[execname, pid] = count();
	@delay_avg[execname, pid] = avg(arg2 / 1000);
	@delay_max[execname, pid] = max(arg2 / 1000);
	@delay_sum[execname, pid] = sum(arg2 / 1000);
	@delays = sum(1);
}

dtrace:::END
{
	printf("\nLength of waits by pool, us:\n");
	printa(@wait_us);
	printf("Dirty data when a writer was delayed, all pools, MiB:\n");
	printa(@dirty_mib);
	printf("Delays set by the throttle, us:\n");
	printf("  %-16s %-8s %10s %10s %10s %12s\n", "COMM", "PID", "COUNT", "AVG", "MAX", "SUM");
	printa("  %-16s %-8d %@10u %@10u %@10u %@12u\n", @delay_count, @delay_avg, @delay_max, @delay_sum);
	printf("Waits, delays included, us:\n");
	printf("  %-16s %-16s %-8s %10s %10s %10s %12s\n", "POOL", "COMM", "PID", "COUNT", "AVG", "MAX",
	    "SUM");
	printa("  %-16s %-16s %-8d %@10u %@10u %@10u %@12u\n", @wait_count, @wait_avg, @wait_max,
	    @wait_sum);
	printa("\n%@u waits", @waits);
	printa(", %@u delays", @delays);
	printa(", errors: %@u\n", @errors);
}

#!/usr/sbin/dtrace -Zs
/*
 * Linux. Generated from source/txgstate.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * txgstate.d  One line for each transaction group of OpenZFS: how long it was in each state.
 *
 * USAGE: txgstate.d [POOL]
 *
 * -1 is a state that began before the tool. See txgstate.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option dynvarsize=1m
#pragma D option strsize=64
#pragma D option switchrate=10hz

inline string WANTED = $$1;

dtrace:::BEGIN
{
	printf("Tracing txgs, times in ms... Hit Ctrl-C to end.\n");
	printf("%-8s %-16s %12s %9s %9s %9s %9s %6s\n", "UTC", "POOL", "TXG", "OPEN", "QUIESCE",
	    "WAIT", "SYNC", "PASSES");
}

/*
 * (dsl_pool_t *, uint64_t txg). A dsl_pool_t begins with a pointer to its spa_t, and that with the
 * pool's name, in every version.
 */
fbt::trace_zfs_txg__opened:entry
{
	opened[arg0, arg1] = timestamp;
	saw_opened = 1;
}

fbt::trace_zfs_txg__quiescing:entry
{
	quiescing[arg0, arg1] = timestamp;
	saw_quiescing = 1;
}

fbt::trace_zfs_txg__quiesced:entry
{
	quiesced[arg0, arg1] = timestamp;
	saw_quiesced = 1;
}

fbt::trace_zfs_txg__syncing:entry
{
	syncing[arg0, arg1] = timestamp;
	saw_syncing = 1;
}

fbt::trace_zfs_dsl_pool_sync__done:entry
{
	passes[arg0, arg1]++;
}

fbt::trace_zfs_txg__synced:entry
{
	saw_synced = 1;
	this->opened = opened[arg0, arg1];
	this->quiescing = quiescing[arg0, arg1];
	this->quiesced = quiesced[arg0, arg1];
	this->syncing = syncing[arg0, arg1];
	this->passes = passes[arg0, arg1];
	this->now = timestamp;
}

fbt::trace_zfs_txg__synced:entry
/WANTED == "" || WANTED == stringof(*(char **)arg0)/
{
	this->s = walltimestamp / 1000000000;
	printf("%02d:%02d:%02d %-16s %12d %9d %9d %9d %9d %6d\n",
	    this->s / 3600 % 24, this->s / 60 % 60, this->s % 60, stringof(*(char **)arg0), arg1,
	    this->opened ? (int64_t)(this->quiescing - this->opened) / 1000000 : -1,
	    this->quiescing ? (int64_t)(this->quiesced - this->quiescing) / 1000000 : -1,
	    this->quiesced ? (int64_t)(this->syncing - this->quiesced) / 1000000 : -1,
	    this->syncing ? (int64_t)(this->now - this->syncing) / 1000000 : -1,
	    this->passes);
}

fbt::trace_zfs_txg__synced:entry
{
	opened[arg0, arg1] = 0;
	quiescing[arg0, arg1] = 0;
	quiesced[arg0, arg1] = 0;
	syncing[arg0, arg1] = 0;
	passes[arg0, arg1] = 0;
	@txgs = sum(1);
}

dtrace:::BEGIN
{
	@txgs = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

dtrace:::END
{
	printa("%@u txgs of all pools", @txgs);
	printa(", errors: %@u\n", @errors);
}

dtrace:::END
/saw_synced && !(saw_opened && saw_quiescing && saw_quiesced && saw_syncing)/
{
	printf("Never fired: %s%s%s%s\n",
	    saw_opened ? "" : "fbt::trace_zfs_txg__opened:entry ", saw_quiescing ? "" : "fbt::trace_zfs_txg__quiescing:entry ",
	    saw_quiesced ? "" : "fbt::trace_zfs_txg__quiesced:entry ", saw_syncing ? "" : "fbt::trace_zfs_txg__syncing:entry");
}

dtrace:::END
/!saw_synced/
{
	printf("No txg was seen to end: see REQUIREMENTS in the manual page.\n");
}

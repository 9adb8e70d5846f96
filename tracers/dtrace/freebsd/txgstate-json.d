#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/txgstate-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * txgstate-json.d  One JSON object for each transaction group of OpenZFS.
 *
 * USAGE: txgstate-json.d [POOL]
 *
 * null is a state that began before the tool. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=256k
#pragma D option dynvarsize=1m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline string WANTED = $$1;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"txgstate\"}\n");
}

uint64_t wanted[uint64_t];
uint64_t asked[uint64_t];
uint64_t first[uint64_t];
uint64_t open_txg[uint64_t];
uint64_t last_sync[uint64_t];

/*
 * (dsl_pool_t *, uint64_t txg). A dsl_pool_t begins with a pointer to its spa_t, and that with the
 * pool's name, in every version.
 */
sdt:::txg-opened
{
	opened[arg0, arg1] = timestamp;
	saw_opened = 1;
}

sdt:::txg-quiescing
{
	quiescing[arg0, arg1] = timestamp;
	saw_quiescing = 1;
}

sdt:::txg-quiesced
{
	quiesced[arg0, arg1] = timestamp;
	saw_quiesced = 1;
}

sdt:::txg-syncing
{
	syncing[arg0, arg1] = timestamp;
	saw_syncing = 1;
}

sdt:::dsl_pool_sync-done
{
	passes[arg0, arg1]++;
}

sdt:::txg-synced
{
	saw_synced = 1;
	this->opened = opened[arg0, arg1];
	this->quiescing = quiescing[arg0, arg1];
	this->quiesced = quiesced[arg0, arg1];
	this->syncing = syncing[arg0, arg1];
	this->passes = passes[arg0, arg1];
	this->now = timestamp;
}

/*
 * Why a txg was closed: 1 dirty data, 2 a waiter, 0 none seen. A request names the last txg that has
 * to be closed; at most the open one and the two after it, which put it on disk for good.
 */
fbt:zfs:txg_kick:entry
{
	this->last = arg1;
	this->why = 1;
}

/* txg 0 stands for the open one and the two after it */
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_sig:entry,
fbt:zfs:txg_wait_synced_flags:entry
{
	this->last = arg1 && arg1 < open_txg[arg0] + 2 ? arg1 : open_txg[arg0] + 2;
	this->why = 2;
}

/* (dsl_pool_t *, uint64_t txg, boolean_t should_quiesce): until txg is open */
fbt:zfs:txg_wait_open:entry
{
	this->last = arg2 && arg1 ? arg1 - 1 : 0;
	this->why = 2;
}

/* For the open one the first request counts, for those after it the one for the last txg. */
fbt:zfs:txg_kick:entry,
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_sig:entry,
fbt:zfs:txg_wait_synced_flags:entry,
fbt:zfs:txg_wait_open:entry
/open_txg[arg0] && this->last >= open_txg[arg0] && !first[arg0]/
{
	first[arg0] = this->why;
}

fbt:zfs:txg_kick:entry,
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_sig:entry,
fbt:zfs:txg_wait_synced_flags:entry,
fbt:zfs:txg_wait_open:entry
/open_txg[arg0] && this->last > wanted[arg0]/
{
	wanted[arg0] = this->last;
	asked[arg0] = this->why;
}

/* Of another pool, with a dsl_pool_t where that of the old one was. */
sdt:::txg-quiescing
/arg1 < open_txg[arg0]/
{
	first[arg0] = 0;
	wanted[arg0] = 0;
	last_sync[arg0] = 0;
}

sdt:::txg-quiescing
{
	reason[arg0, arg1] = first[arg0] ? first[arg0] : arg1 <= wanted[arg0] ? asked[arg0] : 0;
	first[arg0] = 0;
	since[arg0, arg1] = last_sync[arg0] ? timestamp - last_sync[arg0] : 0;
	open_txg[arg0] = arg1 + 1;
}

sdt:::txg-syncing
{
	last_sync[arg0] = timestamp;
}

sdt:::txg-synced
/WANTED == "" || WANTED == stringof(*(char **)arg0)/
{
	this->wall = walltimestamp;
	/* the date of this->wall, in ns since 1970, in the Gregorian calendar: years begin in March */
	this->s = this->wall / 1000000000;
	this->days = this->s / 86400 + 719468;
	this->era = this->days / 146097;
	this->doe = this->days % 146097;
	this->yoe = (this->doe - this->doe / 1460 + this->doe / 36524 - this->doe / 146096) / 365;
	this->doy = this->doe - (365 * this->yoe + this->yoe / 4 - this->yoe / 100);
	this->mp = (5 * this->doy + 2) / 153;
	this->day = this->doy - (153 * this->mp + 2) / 5 + 1;
	this->month = this->mp < 10 ? this->mp + 3 : this->mp - 9;
	this->year = this->yoe + this->era * 400 + (this->month <= 2 ? 1 : 0);
	printf("{\"schema\":1,\"type\":\"txg\",\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"",
	    this->year, this->month, this->day, this->s / 3600 % 24, this->s / 60 % 60, this->s % 60,
	    this->wall / 1000 % 1000000);
	printf(",\"pool\":\"%s\",\"txg\":%d", stringof(*(char **)arg0), arg1);
	printf(",\"since_sync_ns\":%s", since[arg0, arg1] ? lltostr(since[arg0, arg1]) : "null");
	printf(",\"open_ns\":%s", this->opened ? lltostr(this->quiescing - this->opened) : "null");
	printf(",\"quiesce_ns\":%s",
	    this->quiescing ? lltostr(this->quiesced - this->quiescing) : "null");
	printf(",\"wait_ns\":%s", this->quiesced ? lltostr(this->syncing - this->quiesced) : "null");
	printf(",\"sync_ns\":%s", this->syncing ? lltostr(this->now - this->syncing) : "null");
	printf(",\"passes\":%d,\"dirty_bytes\":null,\"written_bytes\":null", this->passes);
	printf(",\"delayed_tx\":null,\"delay_ns\":null,\"reason\":\"%s\"}\n",
	    reason[arg0, arg1] == 1 ? "dirty" : reason[arg0, arg1] == 2 ? "waiter" : "unknown");
}

/* Also of the other pools, or dtrace would run out of variables within a day. */
sdt:::txg-synced
{
	reason[arg0, arg1] = 0;
	since[arg0, arg1] = 0;
}

sdt:::txg-synced
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

profile:::tick-500ms
{
	printa("{\"schema\":1,\"type\":\"trace_state\",\"errors\":%@u}\n", @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"txgstate\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"txgs\":%@u", @txgs);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%s%s%s%snull]}\n",
	    saw_opened ? "" : "\"sdt:::txg-opened\",",
	    saw_quiescing ? "" : "\"sdt:::txg-quiescing\",",
	    saw_quiesced ? "" : "\"sdt:::txg-quiesced\",",
	    saw_syncing ? "" : "\"sdt:::txg-syncing\",",
	    saw_synced ? "" : "\"sdt:::txg-synced\",");
}

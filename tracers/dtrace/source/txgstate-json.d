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

{{include txg.d}}

/*
 * Why a txg was closed: 1 dirty data, 2 a waiter, 0 none seen. A request names the last txg that has
 * to be closed; at most the open one and the two after it, which put it on disk for good.
 */
fbt:{{ZFS}}:txg_kick:entry
{
	this->last = arg1;
	this->why = 1;
}

/* txg 0 stands for the open one and the two after it */
fbt:{{ZFS}}:txg_wait_synced:entry,
fbt:{{ZFS}}:txg_wait_synced_sig:entry,
fbt:{{ZFS}}:txg_wait_synced_flags:entry
{
	this->last = arg1 && arg1 < open_txg[arg0] + 2 ? arg1 : open_txg[arg0] + 2;
	this->why = 2;
}

/* (dsl_pool_t *, uint64_t txg, boolean_t should_quiesce): until txg is open */
fbt:{{ZFS}}:txg_wait_open:entry
{
	this->last = arg2 && arg1 ? arg1 - 1 : 0;
	this->why = 2;
}

/* For the open one the first request counts, for those after it the one for the last txg. */
fbt:{{ZFS}}:txg_kick:entry,
fbt:{{ZFS}}:txg_wait_synced:entry,
fbt:{{ZFS}}:txg_wait_synced_sig:entry,
fbt:{{ZFS}}:txg_wait_synced_flags:entry,
fbt:{{ZFS}}:txg_wait_open:entry
/open_txg[arg0] && this->last >= open_txg[arg0] && !first[arg0]/
{
	first[arg0] = this->why;
}

fbt:{{ZFS}}:txg_kick:entry,
fbt:{{ZFS}}:txg_wait_synced:entry,
fbt:{{ZFS}}:txg_wait_synced_sig:entry,
fbt:{{ZFS}}:txg_wait_synced_flags:entry,
fbt:{{ZFS}}:txg_wait_open:entry
/open_txg[arg0] && this->last > wanted[arg0]/
{
	wanted[arg0] = this->last;
	asked[arg0] = this->why;
}

/* Of another pool, with a dsl_pool_t where that of the old one was. */
{{TXG_QUIESCING}}
/arg1 < open_txg[arg0]/
{
	first[arg0] = 0;
	wanted[arg0] = 0;
	last_sync[arg0] = 0;
}

{{TXG_QUIESCING}}
{
	reason[arg0, arg1] = first[arg0] ? first[arg0] : arg1 <= wanted[arg0] ? asked[arg0] : 0;
	first[arg0] = 0;
	since[arg0, arg1] = last_sync[arg0] ? timestamp - last_sync[arg0] : 0;
	open_txg[arg0] = arg1 + 1;
}

{{TXG_SYNCING}}
{
	last_sync[arg0] = timestamp;
}

{{TXG_SYNCED}}
/WANTED == "" || WANTED == stringof(*(char **)arg0)/
{
	this->wall = walltimestamp;
{{include utc.d}}
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
{{TXG_SYNCED}}
{
	reason[arg0, arg1] = 0;
	since[arg0, arg1] = 0;
}

{{include txg-end.d}}

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
	    saw_opened ? "" : "\"{{TXG_OPENED}}\",",
	    saw_quiescing ? "" : "\"{{TXG_QUIESCING}}\",",
	    saw_quiesced ? "" : "\"{{TXG_QUIESCED}}\",",
	    saw_syncing ? "" : "\"{{TXG_SYNCING}}\",",
	    saw_synced ? "" : "\"{{TXG_SYNCED}}\",");
}

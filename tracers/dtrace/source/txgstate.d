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

{{include txg.d}}

{{TXG_SYNCED}}
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

{{include txg-end.d}}

dtrace:::END
{
	printa("%@u txgs of all pools", @txgs);
	printa(", errors: %@u\n", @errors);
}

dtrace:::END
/saw_synced && !(saw_opened && saw_quiescing && saw_quiesced && saw_syncing)/
{
	printf("Never fired: %s%s%s%s\n",
	    saw_opened ? "" : "{{TXG_OPENED}} ", saw_quiescing ? "" : "{{TXG_QUIESCING}} ",
	    saw_quiesced ? "" : "{{TXG_QUIESCED}} ", saw_syncing ? "" : "{{TXG_SYNCING}}");
}

dtrace:::END
/!saw_synced/
{
	printf("No txg was seen to end: see REQUIREMENTS in the manual page.\n");
}

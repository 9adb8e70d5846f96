self uint64_t began;
self uint64_t waited;

dtrace:::BEGIN
{
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/* (uint64_t bytes): returns at once unless the ARC is much larger than its target. */
fbt:{{ZFS}}:arc_wait_for_eviction:entry
{
	self->began = timestamp;
}

/* (uint64_t bytes, uint64_t evicted, uint64_t until): the thread is about to wait. */
{{ARC_WAIT}}
/self->began/
{
	self->waited = arg0;
}

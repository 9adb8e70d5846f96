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

/*
 * (uint64_t bytes, uint64_t evicted, uint64_t until): the thread is about to wait in
 * arc_wait_for_eviction. Not its entry: it is called for each new buffer, mostly returns at once, and
 * at that rate dtrace runs out of thread-local variables, which it cleans up now and then only.
 */
{{ARC_WAIT}}
{
	self->began = timestamp;
	self->waited = arg0;
}

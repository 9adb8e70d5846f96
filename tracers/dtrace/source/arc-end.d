fbt:{{ZFS}}:arc_wait_for_eviction:return
/self->waited/
{
	self->began = 0;
	self->waited = 0;
}

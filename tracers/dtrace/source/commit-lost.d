	@lost = sum(1);
	waiting[self->waiter] = 0;
	done_at[self->waiter] = 0;
	written_at[self->waiter] = 0;
	self->waiter = 0;
{{include commit-clear.d}}

{{COMMIT_RETURN}}
/self->start/
{
{{include commit-clear.d}}
}

dtrace:::BEGIN
{
	@lost = sum(0);
	@bypassed = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

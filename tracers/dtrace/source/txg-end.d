{{TXG_SYNCED}}
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

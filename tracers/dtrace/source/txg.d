/*
 * (dsl_pool_t *, uint64_t txg). A dsl_pool_t begins with a pointer to its spa_t, and that with the
 * pool's name, in every version.
 */
{{TXG_OPENED}}
{
	opened[arg0, arg1] = timestamp;
	saw_opened = 1;
}

{{TXG_QUIESCING}}
{
	quiescing[arg0, arg1] = timestamp;
	saw_quiescing = 1;
}

{{TXG_QUIESCED}}
{
	quiesced[arg0, arg1] = timestamp;
	saw_quiesced = 1;
}

{{TXG_SYNCING}}
{
	syncing[arg0, arg1] = timestamp;
	saw_syncing = 1;
}

{{TXG_PASS}}
{
	passes[arg0, arg1]++;
}

{{TXG_SYNCED}}
{
	saw_synced = 1;
	this->opened = opened[arg0, arg1];
	this->quiescing = quiescing[arg0, arg1];
	this->quiesced = quiesced[arg0, arg1];
	this->syncing = syncing[arg0, arg1];
	this->passes = passes[arg0, arg1];
	this->now = timestamp;
}

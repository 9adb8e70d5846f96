	/* this->bucket of this->ns: 32 for each power of two (see tracers/zfstrace/hist.py) */
	this->v = this->ns;
	this->b = this->v >> 32 ? 32 : 0;
	this->v = this->v >> this->b;
	this->bits = this->b;
	this->b = this->v >> 16 ? 16 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 8 ? 8 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 4 ? 4 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 2 ? 2 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b + (this->v >> 1 ? 1 : 0);
	this->shift = this->bits > 5 ? this->bits - 5 : 0;
	this->bucket = this->ns < 64 ? this->ns : this->ns >> 42 ? 1215 :
	    this->shift * 32 + (this->ns >> this->shift);

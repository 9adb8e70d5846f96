	/* the date of this->wall, in ns since 1970, in the Gregorian calendar: years begin in March */
	this->s = this->wall / 1000000000;
	this->days = this->s / 86400 + 719468;
	this->era = this->days / 146097;
	this->doe = this->days % 146097;
	this->yoe = (this->doe - this->doe / 1460 + this->doe / 36524 - this->doe / 146096) / 365;
	this->doy = this->doe - (365 * this->yoe + this->yoe / 4 - this->yoe / 100);
	this->mp = (5 * this->doy + 2) / 153;
	this->day = this->doy - (153 * this->mp + 2) / 5 + 1;
	this->month = this->mp < 10 ? this->mp + 3 : this->mp - 9;
	this->year = this->yoe + this->era * 400 + (this->month <= 2 ? 1 : 0);

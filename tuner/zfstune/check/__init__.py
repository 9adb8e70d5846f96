"""`zfstune check`: one line, perfdata and a status for Icinga, Zabbix and others."""

dtrace:::END
/seen_commit && !saw_written/
{
	printf("Never fired: zil_lwb_write_done:entry; log_write and flush are in device_wait.\n");
}

dtrace:::END
/seen_commit && !saw_flushed/
{
	printf("Never fired: zil_lwb_flush_vdevs_done:entry; log_write and flush are in device_wait.\n");
}

dtrace:::END
/seen_commit && !saw_told/
{
	printf("Never fired: {{CV_BROADCAST}}; wakeup is in device_wait.\n");
}

dtrace:::END
/!seen_commit/
{
	printf("No commit was seen: see REQUIREMENTS in the manual page.\n");
}

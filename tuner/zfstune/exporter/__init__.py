"""`zfstune exporter`: metrics of fsyncs, txgs, waits and the cache for Prometheus."""

"""zfstrace.host.Host on FreeBSD: sysctl(3) for parameters and kstats."""

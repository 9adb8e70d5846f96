"""Live views of fsyncs, txgs, throttle, devices, ARC and reads, and `doctor`."""

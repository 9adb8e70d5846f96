"""Live views of fsyncs, txgs, throttle, devices and ARC, and `doctor`."""

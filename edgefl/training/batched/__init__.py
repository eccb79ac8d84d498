"""Engine ``batched``: many jobs in one computation, for accelerators."""

"""Engine ``parallel``: one job per core, in worker processes."""

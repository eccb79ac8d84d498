"""Engine ``parallel``: one job per core, in threads or worker processes."""

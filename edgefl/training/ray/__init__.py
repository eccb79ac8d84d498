"""Engine ``ray``: jobs on the machines of a Ray cluster."""

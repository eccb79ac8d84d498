"""Make a device profile of a machine from timed training steps."""

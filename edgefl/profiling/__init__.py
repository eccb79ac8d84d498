"""From a machine's timed training steps to a device profile of it."""

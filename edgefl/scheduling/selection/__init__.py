"""Who takes part in a round: one selector a module."""

"""Client selection for a round: one selector in each module."""

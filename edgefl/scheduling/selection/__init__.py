"""Client selection for a round."""

"""Which clients take part in a round, and which blocks each of them receives."""

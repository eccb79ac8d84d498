"""Which clients take part in a round, which blocks each of them receives, and how their transfers share links."""

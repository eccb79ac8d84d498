"""Server updates, which compute the next model from the clients' deltas: one update per module."""

"""How the server turns the clients' deltas into the next model: one update a module."""

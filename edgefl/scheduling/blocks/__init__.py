"""How many blocks each client receives."""

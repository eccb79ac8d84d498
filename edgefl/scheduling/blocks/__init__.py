"""How many blocks each client receives: one block scheduler a module."""

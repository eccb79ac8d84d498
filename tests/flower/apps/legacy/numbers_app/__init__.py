"""A small app in the legacy style."""

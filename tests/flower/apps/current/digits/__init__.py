"""A small app."""

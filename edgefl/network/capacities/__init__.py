"""The capacity of clients' links: one kind in each module."""

"""How rounds run: one protocol in each module."""

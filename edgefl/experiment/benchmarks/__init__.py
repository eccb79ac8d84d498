"""How fast edgefl works: only ratios measured in turn in one process, never against a number from elsewhere."""

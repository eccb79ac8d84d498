"""One self-contained HTML page about finished runs: a single file that loads nothing from the network."""

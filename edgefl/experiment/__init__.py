"""A scenario times methods times seeds: wires the world and writes the run directory."""

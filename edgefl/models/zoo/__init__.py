"""The models included in edgefl, one module each."""

"""The training engines: one module for each, whose name is the engine's name. No other list of them exists."""

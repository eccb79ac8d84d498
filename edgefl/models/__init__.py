"""Models as consecutive blocks, each of which a method can address."""

"""How a local step uses the gradient: one rule a module."""

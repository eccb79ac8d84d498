"""Local rules, which use the gradient in a local step: one rule per module."""

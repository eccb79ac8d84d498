"""What a method sends down and up: one payload a module."""

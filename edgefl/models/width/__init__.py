"""Narrower models: which channels of which tensors belong together, and the network of some of them."""

"""A scenario as real processes that send over real, shaped links.

The modules that run next to a node's process import neither PyTorch nor the simulated network.
"""

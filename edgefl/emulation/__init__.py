"""A scenario as real processes over real, shaped links; those beside a node import neither PyTorch nor the network."""

"""Data, models as blocks, and the parts of a federated-learning method. This package does not use simulated time."""

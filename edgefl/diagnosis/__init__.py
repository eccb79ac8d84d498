"""The curvature of the loss at a model, and the dissimilarity of clients' curvatures."""

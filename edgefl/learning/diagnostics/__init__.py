"""The curvature of the loss at a model, and how far apart clients' curvatures are."""

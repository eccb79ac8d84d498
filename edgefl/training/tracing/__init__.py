"""Local steps that are recorded once and repeated without modules and autograd."""

"""What a model is trained for: the loss of its outputs, the labels, and the metric by which runs are compared."""

"""Tasks of models: the loss of the outputs, the labels, and the metric by which runs are compared."""

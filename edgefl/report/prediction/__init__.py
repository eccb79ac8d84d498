"""One run compared with the prediction of another: an emulated run with a simulated one of the same scenario."""

"""A run on a time axis: transfers and computations, figures derived from them, a trace and a picture."""

"""Which part of the model a client trains, by its capacity level."""

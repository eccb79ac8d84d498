"""How the server divides its bandwidth among transfers: one allocation in each module."""

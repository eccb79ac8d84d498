"""What a client minimises: one loss a module."""

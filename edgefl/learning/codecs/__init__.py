"""How numbers become bytes on the wire, and what comes out at the other end: one codec a module."""

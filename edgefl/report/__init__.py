"""Tables, pictures and sentences, all made from a run directory alone."""

"""A finished run, executed again: verified, replayed, or timed under other conditions."""

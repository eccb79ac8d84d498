"""Named recipes of objective, local rule, server update and payload: one method per module."""

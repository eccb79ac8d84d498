"""Run a scenario with many settings: jobs in local processes or on Ray, and one table of results."""

"""The SimPy world: clients' participations, round protocols, budgets, the event log and its invariants."""

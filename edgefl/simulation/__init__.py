"""The SimPy world: clients' lives, round protocols, budgets, the event log and its invariants."""

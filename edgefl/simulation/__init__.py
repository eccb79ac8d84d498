"""The SimPy world: clients' participations, round protocols, budgets, and the laws that every log obeys."""

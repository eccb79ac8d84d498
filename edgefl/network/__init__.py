"""Topologies, links, capacities over time, and max-min fair flows."""

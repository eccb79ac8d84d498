"""Secure aggregation and differential privacy: their options, messages, sums, noise and accounting."""

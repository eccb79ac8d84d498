"""What a scenario costs, and how schedulers compare in it, without training."""

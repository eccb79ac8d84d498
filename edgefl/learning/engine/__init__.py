"""How training jobs become results: the same jobs, the same results, at the speed of the hardware."""

"""Benchmarks of edgefl: ratios of measurements taken in turn in one process, never compared with external figures."""

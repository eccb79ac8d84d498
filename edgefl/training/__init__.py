"""Engines that run training jobs: the same jobs give the same results, at the speed of the hardware."""

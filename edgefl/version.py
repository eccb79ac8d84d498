"""The one place that states edgefl's version."""

__version__ = "0.1.0"

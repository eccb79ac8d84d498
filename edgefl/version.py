"""The version of edgefl, defined only here."""

__version__ = "0.3.0"

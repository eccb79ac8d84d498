"""The names and paths of everything in a run directory."""

from edgefl.record.names import label_fault
from edgefl.record.paths import RunPaths, SeedPaths

__all__ = ["RunPaths", "SeedPaths", "label_fault"]

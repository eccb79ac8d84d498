"""What a run directory holds, and where: the one home of its names and paths."""

from edgefl.record.names import label_fault
from edgefl.record.paths import RunPaths, SeedPaths

__all__ = ["RunPaths", "SeedPaths", "label_fault"]

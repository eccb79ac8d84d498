"""The laws of the world, checked on the log of a finished run.

Each module holds one family of laws as generators of violations, every one a sentence that names time and place. They
work from the log, the resolved fleet and the step costs alone, and share no code with the world that wrote the log.
"""

from edgefl.simulation.invariants.record import CostEntry, Record
from edgefl.simulation.invariants.verification import violations

__all__ = ["CostEntry", "Record", "violations"]

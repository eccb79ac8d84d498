"""The invariants of the simulation, checked on the log of a finished run.

Each module contains one family of invariants, as generators of violations. A violation is a sentence with time and
place. The checks use only the log, the resolved fleet and the step costs, and share no code with the simulation that
wrote the log.
"""

from edgefl.simulation.invariants.record import Record
from edgefl.simulation.invariants.verification import violations

__all__ = ["Record", "violations"]

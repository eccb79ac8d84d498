"""edgefl: on these devices, over these networks, within this budget, which method reaches which accuracy, and when?"""

from edgefl.version import __version__

__all__ = ["__version__"]

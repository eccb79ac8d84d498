"""The names of devices and engines for training, for scenarios, Python and the command line; without PyTorch."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

DeviceName = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)

ENGINE_NAMES = tuple(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "training/engines")]))
"""The engines' names: the modules of ``edgefl.training.engines``, sorted."""

if TYPE_CHECKING:
    EngineKind = str
else:
    EngineKind = Literal["auto", *ENGINE_NAMES]
    """An engine, or ``auto``, which chooses one by fixed rules."""


def cores() -> int:
    """Processor cores that this process may use: those of its CPU affinity, limited by the quota of its container."""
    from loky import cpu_count

    return int(cpu_count())

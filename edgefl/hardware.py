"""The names of devices and engines for training, for scenarios, Python and the command line."""

from __future__ import annotations

from typing import Literal, get_args

DeviceName = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)

EngineName = Literal["sequential", "parallel", "batched", "ray"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

EngineKind = Literal["auto", EngineName]
"""An engine, or ``auto``, which chooses one by fixed rules."""

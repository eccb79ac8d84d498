"""A step on fixed memory that is recorded once and then repeated: on CUDA as a graph of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from edgefl.training import accelerator


class Replay(Protocol):
    """A step that reads ``reads`` and writes ``writes``, both in fixed memory, and may change other memory in place."""

    reads: Mapping[str, Tensor]
    writes: Tensor

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        """Run the step with these inputs, and return a copy of its output."""


class DirectReplay:
    """Calls the step; for devices without graphs, and to test that a step uses fixed memory only."""

    reads: Mapping[str, Tensor]
    writes: Tensor

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        for name, tensor in given.items():
            self.reads[name].copy_(tensor)
        self._run()
        return self.writes.clone()

    def _run(self) -> None:
        self._step()


class GraphReplay(DirectReplay):
    """Records the kernels of the second call as a CUDA graph; later calls launch that graph.

    A local step of a small model is a few hundred kernels of microseconds each; launched one by one, they wait for
    Python. The first call is not recorded, because libraries initialise in it. The bits are the same. A step that
    cannot be recorded, because it waits for the device, always runs without a graph, after a warning.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(step)
        self._calls = 0
        self._graph: Callable[[], None] | None = None

    def _run(self) -> None:
        self._calls += 1
        if self._calls == 2:
            self._graph = self._recorded()
        (self._graph or self._step)()

    def _recorded(self) -> Callable[[], None] | None:
        return accelerator.recorded(self._step, self.writes.device)

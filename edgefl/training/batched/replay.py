"""A step on fixed memory that is recorded once and then repeated: on CUDA as a graph of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from edgefl.training import accelerator


class Replay:
    """Calls a step that reads ``reads`` and writes ``writes``, both in fixed memory; it may change other memory, too.

    On CUDA, the kernels of the second call are recorded as a graph, which later calls launch: a local step of a small
    model is a few hundred kernels of microseconds each; launched one by one, they wait for Python. The first call is
    not recorded, because libraries initialise in it. The bits are the same. A step that cannot be recorded, because it
    waits for the device, always runs without a graph, after a warning.
    """

    reads: Mapping[str, Tensor]
    writes: Tensor

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._calls = 0
        self._graph: Callable[[], None] | None = None

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        """Run the step with these inputs, and return a copy of its output."""
        for name, tensor in given.items():
            self.reads[name].copy_(tensor)
        self._calls += 1
        if self._calls == 2 and self.writes.device.type == "cuda":
            self._graph = self._recorded()
        (self._graph or self._step)()
        return self.writes.clone()

    def _recorded(self) -> Callable[[], None] | None:
        return accelerator.recorded(self._step, self.writes.device)

"""Traced steps: a step's operators are traced once and then replayed without autograd's bookkeeping.

A step of a small network is dozens of operators of some microseconds each; modules and autograd's bookkeeping take a
tenth of the time. The operators of a step do not depend on the data (the cost model counts them on tensors without
data), so they, including the backward pass, can be called again with other tensors. They are the same operators in the
same order, and if images are converted to another memory format for them, the elements are the same. So results are
bit-identical.

A step whose operators or sizes depend on the data is not traced; :mod:`edgefl.cost.data_dependence` lists the
operators that can cause this. Every traced step is compared with a plain step before it is used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgefl.methods.parts.local_step import Differentiate, Leaves, Precision, differentiated
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.training.tracing.traced_step import StepTracer, TracedStep

KINDS_KEPT = 256
"""Maximum number of kinds of steps (objective, shapes) that are kept at a time."""

FREE_TRACES, STEPS_A_TRACE = 8, 32
"""Number of steps that are always traced, and of replayed steps required for each further one.

Tracing one step costs as much as a dozen replays save.
"""

ROOM_BYTES = 64 << 20
"""A step that creates more bytes is not traced: its operators take so long that the overhead does not matter."""

_tracing = threading.Lock()
"""A dispatch mode changes process-wide state of PyTorch, so only one thread traces at a time."""

Plainly = Callable[[], tuple[Tensor, Loss]]
"""Computes a step's gradient without traced steps."""


class _Kind:
    """The state of one kind of steps.

    The first step runs plainly: it may be the only one, such as a client's last, smaller batch. The second step is
    traced, and the third is compared with the traced step.

    Attributes:
        traced: the traced step, after a successful comparison.
    """

    def __init__(self) -> None:
        self.traced: TracedStep | None = None
        self._seen = self._ended = False
        self._candidate: TracedStep | None = None

    def step(self, plainly: Plainly, inputs: Sequence[Tensor], steps: TracedSteps) -> tuple[Tensor, Loss]:
        """Run a step that is not replayed."""
        if self._ended or not self._seen:
            self._seen = True
            return plainly()
        return self._compare(plainly, inputs) if self._candidate else self._trace(plainly, inputs, steps)

    def _trace(self, plainly: Plainly, inputs: Sequence[Tensor], steps: TracedSteps) -> tuple[Tensor, Loss]:
        if not steps.pays or not _tracing.acquire(blocking=False):
            return plainly()
        try:
            with StepTracer(inputs, ROOM_BYTES) as tracer:
                gradient, loss = plainly()
        finally:
            _tracing.release()
        steps.traced += 1
        self._candidate = tracer.traced_step(gradient, *loss)
        self._ended = self._candidate is None
        return gradient, loss

    def _compare(self, plainly: Plainly, inputs: Sequence[Tensor]) -> tuple[Tensor, Loss]:
        traced, copies = self._candidate, [_copy(tensor) for tensor in inputs]
        gradient, loss = plainly()
        if traced is not None and all(tensor.isfinite().all() for tensor in (gradient, *loss)):
            self._ended = True
            if _agrees(traced, copies, inputs, [gradient, *loss]):
                self.traced = traced
        return gradient, loss


class TracedSteps:
    """The traced steps of one skeleton; only one thread may use them at a time.

    Attributes:
        traced: number of traced steps so far, including those no longer kept.
        replayed: number of steps run by replaying a traced step.
        used: whether this process traces steps at all.
    """

    used: ClassVar[bool] = True

    _of: ClassVar[WeakKeyDictionary[BlockModel, TracedSteps]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self.traced = 0
        self.replayed = 0

    @classmethod
    def of(cls, model: BlockModel) -> TracedSteps:
        """The traced steps of a skeleton; they exist as long as the skeleton."""
        return cls._of.setdefault(model, cls())

    def job(self, objective: Objective, context: Context) -> Differentiate:
        """A function that computes the gradients of one job's steps, with traced steps if possible.

        Args:
            objective: its loss.
            context: the loss's other inputs, except weights and batch; each step has its own random inputs.
        """
        read = [
            *(tensor for name in sorted(context.frozen) for tensor in _tensors(context.frozen[name])),
            *(context.vectors[name] for name in sorted(context.vectors)),
            *(context.client[name] for name in sorted(context.client)),
        ]
        # If a random draw decides shapes, the loss reads numbers out of tensors.
        if not self.used or not objective.side_by_side or not _hashable(objective) or not _ordinary(read):
            return differentiated
        return _JobSteps(self, objective, context, read)

    @property
    def pays(self) -> bool:
        """Whether steps are replayed often enough to trace another; not if every client has a different size."""
        return self.traced < FREE_TRACES + self.replayed // STEPS_A_TRACE

    def kind(self, key: Hashable) -> _Kind:
        """The state of a kind of steps; created if it does not exist."""
        kind = self._kinds.setdefault(key, _Kind())
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS_KEPT:
            self._kinds.popitem(last=False)
        return kind


class _JobSteps:
    """Computes the gradients of one job's steps; see :meth:`TracedSteps.job`."""

    def __init__(self, steps: TracedSteps, objective: Objective, context: Context, read: Sequence[Tensor]) -> None:
        self._steps = steps
        self._read = read
        self._storages = {tensor.untyped_storage().data_ptr() for tensor in read}
        names = tuple(tuple(sorted(each)) for each in (context.frozen, context.vectors, context.client))
        self._key = repr(objective), objective, context.alpha, names, _forms(read), _overlaps(read)
        self._kinds: dict[Hashable, _Kind] = {}
        self._weights: Weights | None = None
        self._own: list[Tensor] = []
        self._apart = True

    def __call__(  # noqa: PLR0917  (they are those of what it stands in for)
        self,
        objective: Objective,
        leaves: Leaves,
        weights: Weights,
        batch: Batch,
        context: Context,
        precision: Precision,
    ) -> tuple[Tensor, Loss]:
        """Gradient and loss of a step, bit-identical to :func:`~edgefl.methods.parts.local_step.differentiated`."""

        def plainly() -> tuple[Tensor, Loss]:
            return differentiated(objective, leaves, weights, batch, context, precision)

        names = sorted(context.draws)
        given = [*batch, *(context.draws[name] for name in names)]
        if weights is not self._weights:
            # If the rule updates in place, they are the same tensors in every step.
            self._weights, self._own = weights, _tensors(weights)
            self._apart = self._lie_apart(self._own)
        if not (self._apart and _ordinary(given) and self._lie_apart(given)):
            return plainly()
        form = precision, tuple(names), _forms(given)
        kind = self._kinds.get(form)
        if kind is None:
            kind = self._kinds[form] = self._steps.kind((self._key, form, _forms(self._own)))
        inputs = [*self._own, *given, *self._read]
        if kind.traced is None:
            return kind.step(plainly, inputs, self._steps)
        self._steps.replayed += 1
        return _replayed(kind.traced, inputs)

    def _lie_apart(self, tensors: Sequence[Tensor]) -> bool:
        """Whether none of them shares memory with the job's other inputs."""
        return not (self._storages and any(each.untyped_storage().data_ptr() in self._storages for each in tensors))


def _replayed(traced: TracedStep, inputs: Sequence[Tensor]) -> tuple[Tensor, Loss]:
    with torch.no_grad():
        gradient, total, cross_entropy = traced(*inputs)
    return gradient, Loss(total, cross_entropy)


def _agrees(traced: TracedStep, copies: Sequence[Tensor], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether a traced step on ``copies`` agrees to the bit with a plain step's outputs and its inputs afterwards."""
    try:
        gradient, loss = _replayed(traced, copies)
    except Exception:  # noqa: BLE001  (the binding of an operator that takes other arguments)
        return False
    pairs = zip([gradient, *loss, *copies], [*outputs, *inputs], strict=True)
    return all(one.dtype == other.dtype and torch.equal(_bits(one), _bits(other)) for one, other in pairs)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@torch.no_grad()
def _copy(tensor: Tensor) -> Tensor:
    """A copy of the tensor with the same memory layout."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _tensors(weights: Weights) -> list[Tensor]:
    return [tensor for block in weights for tensor in block.values()]


def _ordinary(tensors: Sequence[Tensor]) -> bool:
    """Whether all are tensors in CPU memory without overlapping elements.

    Accelerators launch operators asynchronously, so there Python's overhead costs no time.
    """
    return all(
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and (0 not in tensor.stride() or tensor.numel() < 2)
        for tensor in tensors
    )


def _forms(tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    return tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)


def _overlaps(tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    """Which tensors start within another, and where, such as the received and the previous model of a new client."""
    starts = [tensor.data_ptr() for tensor in tensors]
    ends = [start + tensor.numel() * tensor.element_size() for start, tensor in zip(starts, tensors, strict=True)]
    found = []
    for place, start in enumerate(starts):
        within = next((other for other in range(place) if starts[other] <= start < ends[other]), None)
        around = next((other for other in range(place) if start <= starts[other] < ends[place]), None)
        found.append(
            (
                None if within is None else (within, start - starts[within]),
                None if around is None else (around, starts[around] - start),
            )
        )
    return tuple(found)


def _hashable(objective: Objective) -> bool:
    try:
        hash(objective)
    except TypeError:
        return False
    return True

"""Traced steps: a step's operators are traced once, and replayed without autograd's bookkeeping from then on.

A step of a small network is dozens of operators of some microseconds each, and modules, autograd and its records take
a tenth of it. What a step executes does not depend on the data (the cost model counts it on tensors that have none), so
the operators of a step, backward pass included, can be called again with other tensors. They are the same ones in the
same order, and where images are brought into another order for them, their elements are the same: so is every bit.

A step that executes other operators or sizes with other data is not traced: the operators that can do so are known
(:mod:`edgefl.learning.data_dependence`). Every traced step is compared with a plain one before it is used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgefl.learning.engine.traced_step import StepTracer, TracedStep
from edgefl.learning.local_step import Differentiate, Leaves, differentiated
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.layout import Weights
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.precision import Precision

KINDS_KEPT = 256
"""Kinds of steps (objective, shapes) of which something is known at a time."""

FREE_TRACES, STEPS_A_TRACE = 8, 32
"""Steps that are traced in any case, and replayed steps for each one more: tracing costs as much as a dozen gain."""

ROOM_BYTES = 64 << 20
"""A step that makes more than that is not traced: its operators take so long that nothing else matters."""

_tracing = threading.Lock()
"""PyTorch keeps what a dispatch mode changes for the whole process, so one thread traces at a time."""

Plainly = Callable[[], tuple[Tensor, Loss]]
"""Takes a step's gradient as it would be taken without traced steps."""


class _Kind:
    """What is known of a kind of steps.

    The first step is taken as it is: it may be the only one, as a client's last, smaller batch. The second is traced,
    and with the third the traced step is compared.

    Attributes:
        traced: what the steps execute, once it was found to be that.
    """

    def __init__(self) -> None:
        self.traced: TracedStep | None = None
        self._seen = self._ended = False
        self._candidate: TracedStep | None = None

    def step(self, plainly: Plainly, inputs: Sequence[Tensor], steps: TracedSteps) -> tuple[Tensor, Loss]:
        """Take a step that is not replayed."""
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
    """The traced steps of one skeleton, which one thread uses at a time.

    Attributes:
        traced: steps so far, those that are no longer kept included.
        replayed: steps that were taken by a traced one.
    """

    _of: ClassVar[WeakKeyDictionary[BlockModel, TracedSteps]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self.traced = 0
        self.replayed = 0

    @classmethod
    def of(cls, model: BlockModel) -> TracedSteps:
        """Those of a skeleton, as long as there is it."""
        return cls._of.setdefault(model, cls())

    def job(self, objective: Objective, context: Context) -> Differentiate:
        """What differentiates the steps of one job, traced where they can be.

        Args:
            objective: its loss.
            context: what it reads beside weights and batch; the random inputs of a step come with the step.
        """
        read = [
            *(tensor for name in sorted(context.frozen) for tensor in _tensors(context.frozen[name])),
            *(context.vectors[name] for name in sorted(context.vectors)),
            *(context.client[name] for name in sorted(context.client)),
        ]
        # Where a draw decides shapes, the loss reads numbers out of tensors.
        if not objective.side_by_side or not _hashable(objective) or not _ordinary(read):
            return differentiated
        return _JobSteps(self, objective, context, read)

    @property
    def pays(self) -> bool:
        """Whether steps are replayed often enough to trace another; where every client has a size of its own, no."""
        return self.traced < FREE_TRACES + self.replayed // STEPS_A_TRACE

    def kind(self, key: Hashable) -> _Kind:
        """What is known of a kind of steps, from now on if nothing is yet."""
        kind = self._kinds.setdefault(key, _Kind())
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS_KEPT:
            self._kinds.popitem(last=False)
        return kind


class _JobSteps:
    """Differentiates the steps of one job; see :meth:`TracedSteps.job`."""

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
        """Gradient and loss of a step, to the bits of :func:`~edgefl.learning.local_step.differentiated`."""

        def plainly() -> tuple[Tensor, Loss]:
            return differentiated(objective, leaves, weights, batch, context, precision)

        names = sorted(context.draws)
        given = [*batch, *(context.draws[name] for name in names)]
        if weights is not self._weights:
            # Where the rule steps in place, they are the same tensors from step to step.
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
        """Whether none of them lies in memory of what the job reads beside."""
        return not (self._storages and any(each.untyped_storage().data_ptr() in self._storages for each in tensors))


def _replayed(traced: TracedStep, inputs: Sequence[Tensor]) -> tuple[Tensor, Loss]:
    with torch.no_grad():
        gradient, total, cross_entropy = traced(*inputs)
    return gradient, Loss(total, cross_entropy)


def _agrees(traced: TracedStep, copies: Sequence[Tensor], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether a traced step makes of ``copies`` the bits that a step made of ``inputs``, and changes them as it did."""
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
    """The same numbers elsewhere, in the same order."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _tensors(weights: Weights) -> list[Tensor]:
    return [tensor for block in weights for tensor in block.values()]


def _ordinary(tensors: Sequence[Tensor]) -> bool:
    """Whether all are numbers in a CPU's memory, each in a place of its own.

    On accelerators operators are launched ahead of what they compute, so that Python's time costs nothing.
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
    """Which of them begin within another, as the received and the previous model of a new client do, and where."""
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

"""Gradients without bookkeeping: a step's operators are noted once, and from then on called one after another.

A step of a small network is dozens of operators of some microseconds each, and modules, autograd and its records take
as long again. What a step executes does not depend on the data (the cost model refuses methods of which that is not
so), so the operators of a step, backward pass included, can be called again with other tensors. They are the same ones
in the same order, so every bit is the same; a step is compared before a tape is relied upon.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgefl.learning.engine.tape import Notes, Tape, place
from edgefl.learning.local_step import Differentiate, Leaves, differentiated
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.layout import Weights
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.precision import Precision

KINDS_KEPT = 256
"""Kinds of steps (objective, shapes) of which something is known at a time."""

FREE_TAPES, STEPS_A_TAPE = 8, 32
"""Tapes that are noted in any case, and steps played for each one more: a tape costs as much as a dozen steps gain."""

ROOM_BYTES = 64 << 20
"""A step that makes more than that is not noted: its operators take so long that nothing else matters."""

_NOTED, _COMPARED = 2, 3
"""Which step of a kind is noted, and which compared; the first may be the only one (a client's last, smaller batch)."""


class _Kind:
    """What is known of a kind of steps.

    Attributes:
        steps: how many there have been, up to the one that is compared.
        tape: what they execute, if it could be noted.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.tape: Tape | None = None


class Tapes:
    """The tapes of one skeleton, which one thread uses at a time.

    Attributes:
        noted: tapes so far, those that are no longer kept included.
        played: steps that were taken by a tape.
    """

    _of: ClassVar[WeakKeyDictionary[BlockModel, Tapes]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self.noted = 0
        self.played = 0

    @classmethod
    def of(cls, model: BlockModel) -> Tapes:
        """Those of a skeleton, as long as there is it."""
        return cls._of.setdefault(model, cls())

    def job(self, objective: Objective, context: Context) -> Differentiate:
        """What differentiates the steps of one job.

        It is :func:`~edgefl.learning.local_step.differentiated` itself where a draw decides shapes, and does the same
        without tapes on accelerators, where operators run behind what Python does.

        Args:
            objective: its loss.
            context: what it reads beside weights and batch; the random inputs of a step come with the step.
        """
        if not objective.side_by_side or not _hashable(objective):
            return differentiated
        return _JobTapes(self, objective, context)

    @property
    def pays(self) -> bool:
        """Whether tapes are played often enough to note another one; where every client has a size of its own, no."""
        return self.noted < FREE_TAPES + self.played // STEPS_A_TAPE

    def kind(self, key: Hashable) -> _Kind:
        """What is known of a kind of steps, from now on if nothing is yet."""
        kind = self._kinds.setdefault(key, _Kind())
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS_KEPT:
            self._kinds.popitem(last=False)
        return kind


class _JobTapes:
    """Differentiates the steps of one job; see :meth:`Tapes.job`."""

    def __init__(self, tapes: Tapes, objective: Objective, context: Context) -> None:
        self._tapes = tapes
        held = context.frozen, context.vectors, context.client
        self._read = [
            *(tensor for name in sorted(context.frozen) for tensor in _tensors(context.frozen[name])),
            *(context.vectors[name] for name in sorted(context.vectors)),
            *(context.client[name] for name in sorted(context.client)),
        ]
        names = tuple(tuple(sorted(each)) for each in held)
        self._key = objective, context.alpha, names, _forms(self._read)
        self._kinds: dict[Hashable, _Kind] = {}

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
        names = sorted(context.draws)
        given = [*batch, *(context.draws[name] for name in names)]
        own = _tensors(weights)
        form = precision, tuple(names), _forms(given)
        if form not in self._kinds:
            self._kinds[form] = self._tapes.kind((self._key, form, _forms(own)))
        kind, inputs = self._kinds[form], [*own, *given, *self._read]
        if kind.steps == _COMPARED and kind.tape is not None:
            self._tapes.played += 1
            return _played(kind.tape, inputs)

        def plainly() -> tuple[Tensor, Loss]:
            return differentiated(objective, leaves, weights, batch, context, precision)

        if kind.steps == _COMPARED or batch.labels.device.type != "cpu" or _overlap(inputs):
            return plainly()
        if kind.steps + 1 == _NOTED and not self._tapes.pays:
            return plainly()
        kind.steps += 1
        if kind.steps == _NOTED:
            self._tapes.noted += 1
            with Notes(inputs, ROOM_BYTES) as notes:
                gradient, loss = plainly()
            kind.tape = notes.tape(gradient, *loss)
            return gradient, loss
        if kind.steps == _COMPARED and kind.tape is not None:
            copies = [_copy(tensor) for tensor in inputs]
            gradient, loss = plainly()
            if not _agrees(kind.tape, copies, inputs, [gradient, *loss]):
                kind.tape = None
            return gradient, loss
        return plainly()


def _played(tape: Tape, inputs: Sequence[Tensor]) -> tuple[Tensor, Loss]:
    with torch.no_grad():
        gradient, total, cross_entropy = tape(*inputs)
    return gradient, Loss(total, cross_entropy)


@torch.no_grad()
def _agrees(tape: Tape, copies: Sequence[Tensor], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether a tape makes of ``copies`` the bits that a step made of ``inputs``, and changes them as it did."""
    try:
        gradient, loss = _played(tape, copies)
    except (RuntimeError, TypeError):
        return False  # the binding of an operator that takes other arguments
    pairs = zip([gradient, *loss, *copies], [*outputs, *inputs], strict=True)
    return all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)


@torch.no_grad()
def _copy(tensor: Tensor) -> Tensor:
    """The same numbers elsewhere, in the same order."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _tensors(weights: Weights) -> list[Tensor]:
    return [tensor for block in weights for tensor in block.values()]


def _forms(tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    return tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)


def _overlap(inputs: Sequence[Tensor]) -> bool:
    """Whether two inputs are the same memory, as the received and the previous model of a new client are."""
    places = [place(tensor) for tensor in inputs if tensor.numel()]
    return len(set(places)) < len(places)


def _hashable(objective: Objective) -> bool:
    try:
        hash(objective)
    except TypeError:
        return False
    return True

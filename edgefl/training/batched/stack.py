"""The weights of several clients as rows of matrices, and local steps of several rows in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from edgefl.methods.parts.local_step import checked_loss, minibatches, weighted
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.block_model import BlockModel
from edgefl.models.random_layers import drawn_from
from edgefl.torch_settings import Precision, computing
from edgefl.training.accelerator import Replay
from edgefl.training.engines.sequential import draws_of, first_memory
from edgefl.training.job_task import JobResult, JobTask

Named = Mapping[str, Tensor]
Draws = dict[tuple[int, str], Tensor]


def padded(jobs: int) -> int:
    """The number of rows in a call for ``jobs`` jobs: 2, 4, or a multiple of 8, so that few shapes occur.

    >>> [padded(jobs) for jobs in (1, 2, 3, 8, 9, 50)]
    [2, 2, 4, 8, 16, 56]
    """
    return max(2, 1 << (jobs - 1).bit_length()) if jobs <= 8 else -(-jobs // 8) * 8


class Stack:
    """The jobs of a chunk during training.

    The number of rows is padded like the calls (see :func:`padded`): the extra
    rows repeat the last job and are discarded, so a step of all jobs uses the whole matrices, without gathering rows.
    Tensors that all jobs share, such as the received model as a frozen copy, are stored once. All tensors are copies,
    so no step can write to shared ones.

    The matrices keep their memory from step to step, and :meth:`adopt` writes another chunk into it. So a step of all
    rows can be recorded once and replayed. If steps are ``repeated`` so, the learning rate is a tensor, if the rule
    accepts one, so that rounds of another rate repeat the same recording.

    Attributes:
        tasks: at least two jobs with the same local step; row i is the i-th.
        taken: number of steps that the longest job has run.
    """

    def __init__(
        self, tasks: Sequence[JobTask], model: BlockModel, precision: Precision = "float32", *, repeated: bool = False
    ) -> None:
        self._model = model
        self._precision = precision
        self._begin(tasks)
        rows = [*tasks, *[tasks[-1]] * (padded(len(tasks)) - len(tasks))]
        self._rows = len(rows)
        layout = model.layout
        starts = [layout.split(task.start) for task in rows]
        self._parameters = torch.stack([parameters for parameters, _ in starts])
        self._buffers = torch.stack([buffers for _, buffers in starts])
        # Row by row, because the optimizer state may depend on the client's number of steps (FedADC).
        memories = [first_memory(task, received) for task, (received, _) in zip(rows, starts, strict=True)]
        self._memory = {name: torch.stack([memory[name] for memory in memories]) for name in memories[0]}
        self._shared: dict[str, dict[str, Tensor]] = {}
        self._own: dict[str, dict[str, Tensor]] = {}
        for kind in ("frozen", "vectors", "facts"):
            columns = {name: [getattr(task, kind)[name] for task in rows] for name in getattr(rows[0], kind)}
            alike = {name: all(_same(each, tensors[0]) for each in tensors) for name, tensors in columns.items()}
            self._shared[kind] = {name: tensors[0].clone() for name, tensors in columns.items() if alike[name]}
            self._own[kind] = {name: torch.stack(tensors) for name, tensors in columns.items() if not alike[name]}
        rate = self._parameters.new_tensor(tasks[0].lr) if repeated and tasks[0].rule.takes_lr_on_device else None
        self._rates = {} if rate is None else {"lr": rate}
        self._replays: dict[tuple[object, ...], Replay] = {}
        self._gradient = torch.func.vmap(torch.func.grad(self._loss, has_aux=True))

    def _begin(self, tasks: Sequence[JobTask]) -> None:
        self.tasks = tasks
        self.taken = 0
        self._draws: list[Callable[[int], Named] | None] = [draws_of(task, self._model) for task in tasks]
        self._losses: list[list[Tensor]] = [[] for _ in tasks]
        self._sizes: list[list[int]] = [[] for _ in tasks]

    @property
    def shapes(self) -> tuple[object, ...]:
        """Two stacks of the same kind of jobs with the same shapes can use the same memory."""
        return tuple((name, tensor.shape, tensor.dtype) for name, tensor in self._tensors())

    def adopt(self, other: Stack) -> None:
        """Copy ``other``, which has the same kind of jobs and the same :attr:`shapes`, into this stack's memory."""
        for (_, here), (_, there) in zip(self._tensors(), other._tensors(), strict=True):
            here.copy_(there)
        self._begin(other.tasks)

    def step_all(self, batch: Batch, replay: Callable[[Callable[[], None]], Replay] | None = None) -> None:
        """Run one local step of all jobs on their minibatches ``[jobs, batch, ...]``.

        ``replay`` records the step on fixed memory for repetition; ``None``: no step is recorded.
        """
        rows, replay = list(range(len(self.tasks))), replay if self._begin_step() else None
        extra, size = self._rows - len(rows), batch.labels.shape[1]
        inputs, labels = (_widened(part, extra) for part in batch)
        draws = self._drawn(rows, batch, extra)
        if replay is None:
            losses = self._step(inputs, labels, draws)
        else:
            given: dict[Any, Tensor] = {"inputs": inputs, "labels": labels, **draws}
            key = tuple((name, tensor.shape, tensor.dtype) for name, tensor in given.items())
            if key not in self._replays:
                self._replays[key] = self._repeatable(given, replay)
            losses = self._replays[key](given)
        self._note(rows, losses, size)

    def step(self, rows: list[int], batch: Batch) -> None:
        """Run one local step of only the jobs ``rows`` on their minibatches ``[rows, batch, ...]``."""
        self._begin_step()
        size = batch.labels.shape[1]
        extra = padded(len(rows)) - len(rows)
        index = torch.tensor(rows + [rows[-1]] * extra, device=self._parameters.device)
        memory = {name: value.index_select(0, index) for name, value in self._memory.items()}
        parameters, buffers = self._parameters.index_select(0, index), self._buffers.index_select(0, index)
        own = {
            kind: {name: value.index_select(0, index) for name, value in named.items()}
            for kind, named in self._own.items()
        }
        inputs, labels = (_widened(part, extra) for part in batch)
        parameters, buffers, losses = self._advanced(
            parameters, buffers, memory, own, inputs, labels, self._drawn(rows, batch, extra)
        )
        real, count = index[: len(rows)], len(rows)
        self._parameters.index_copy_(0, real, parameters[:count])
        self._buffers.index_copy_(0, real, buffers[:count])
        for name, value in memory.items():
            self._memory[name].index_copy_(0, real, value[:count])
        self._note(rows, losses, size)

    def results(self) -> list[JobResult]:
        """The results of the jobs."""
        made = []
        # Without the padding rows; all are copies, because the memory is reused.
        for row, (task, losses, sizes) in enumerate(zip(self.tasks, self._losses, self._sizes, strict=True)):
            kept = {name: self._memory[name][row].clone() for name in task.rule.kept}
            final = torch.cat([self._parameters[row], self._buffers[row]])
            made.append(JobResult(final, torch.stack(losses), tuple(sizes), kept))
        return made

    def _begin_step(self) -> bool:
        """Set the step's rate; True if a recorded step has it too."""
        first = self.tasks[0]
        # A tensor only for rules that accept one.
        self._lr: Any = self._rates.get("lr", first.rates[self.taken] if first.rates else first.lr)
        if first.rates and "lr" in self._rates:
            self._lr.fill_(first.rates[self.taken])
        return not first.rates or "lr" in self._rates

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "parameters", self._parameters
        yield "buffers", self._buffers
        for kind, named in (("memory", self._memory), ("rate", self._rates), *self._own.items()):
            yield from ((f"{kind} {name}", tensor) for name, tensor in sorted(named.items()))
        for kind, named in self._shared.items():
            yield from ((f"shared {kind} {name}", tensor) for name, tensor in sorted(named.items()))

    def _drawn(self, rows: Sequence[int], batch: Batch, extra: int) -> Draws:
        """By the number of the step's minibatch and name."""
        found: Draws = {}
        for number, (_, part) in enumerate(minibatches(batch, self.tasks[0].options, 1)):
            size = part.labels.shape[1]
            drawn = [{} if draw is None else draw(size) for draw in (self._draws[row] for row in rows)]
            stacked = {(number, name): torch.stack([one[name] for one in drawn]) for name in drawn[0]}
            found |= {key: _widened(each, extra) for key, each in stacked.items()}
        return found

    def _note(self, rows: Sequence[int], losses: Tensor, size: int) -> None:
        for row, loss in zip(rows, losses, strict=False):
            self._losses[row].append(loss)
            self._sizes[row].append(size)

    def _repeatable(self, given: Mapping[Any, Tensor], replay: Callable[[Callable[[], None]], Replay]) -> Replay:
        held = {name: tensor.clone() for name, tensor in given.items()}
        draws = {key: tensor for key, tensor in held.items() if isinstance(key, tuple)}
        losses = torch.empty(self._rows, dtype=self._parameters.dtype, device=self._parameters.device)

        def step() -> None:
            losses.copy_(self._step(held["inputs"], held["labels"], draws))

        made = replay(step)
        made.reads, made.writes = held, losses
        return made

    def _step(self, inputs: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """In place; returns the losses ``[rows]``."""
        memory = dict(self._memory)
        parameters, buffers, losses = self._advanced(
            self._parameters, self._buffers, memory, self._own, inputs, labels, draws
        )
        _put(self._parameters, parameters)
        _put(self._buffers, buffers)
        for name, value in memory.items():
            _put(self._memory[name], value)
        return losses

    def _advanced(  # noqa: PLR0917  (a step is made of this many things)
        self,
        parameters: Tensor,
        buffers: Tensor,
        memory: dict[str, Tensor],
        own: Mapping[str, Named],
        inputs: Tensor,
        labels: Tensor,
        draws: Draws,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Changes ``memory``."""
        first, lr = self.tasks[0], self._lr
        point = first.rule.point(parameters, memory, lr)
        gradient: Tensor | None = None
        losses: list[Tensor] = []
        for number, (share, part) in enumerate(minibatches(Batch(inputs, labels), first.options, 1)):
            drawn = {name: each for (of, name), each in draws.items() if of == number}
            one, (loss, buffers) = self._gradient(point, buffers, *part, own, drawn)
            one = weighted(one.detach(), share)
            gradient = one if gradient is None else gradient.add_(one)
            losses.append(weighted(loss, share))
        assert gradient is not None
        return first.rule.update(parameters, gradient, memory, first.options, lr), buffers, reduce(torch.add, losses)

    def _loss(  # noqa: PLR0917  (vmap passes by position)
        self,
        parameters: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        labels: Tensor,
        own: Mapping[str, Named],
        draws: Named,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        task, layout = self.tasks[0], self._model.layout
        buffers = buffers.clone()
        named = {kind: {**self._shared[kind], **own[kind]} for kind in self._shared}
        frozen = {name: layout.frozen(*layout.split(vector)) for name, vector in named["frozen"].items()}
        context = Context(self._model, frozen, named["vectors"], named["facts"], task.alpha, draws)
        with computing(self._precision, parameters.device), drawn_from(draws):
            answer = task.objective.loss(layout.weights(parameters, buffers), Batch(inputs, labels), context)
        loss = checked_loss(answer)
        # A loss that does not depend on the parameters has gradient zero, but torch.func requires a dependence.
        total = loss.total + 0 * parameters[0]
        return total, (loss.cross_entropy.detach(), buffers.detach())


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def _widened(rows: Tensor, extra: int) -> Tensor:
    return torch.cat([rows, rows[-1:].expand(extra, *rows.shape[1:])]) if extra else rows


def _put(place: Tensor, value: Tensor) -> None:
    if not _same(place, value):
        place.copy_(value)

"""Several clients' weights as the rows of matrices, and one local step of some of them in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from edgefl.learning.engine.base import JobResult, JobTask
from edgefl.learning.engine.local_training import draws_of
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.objectives.base import Batch, Context

Named = Mapping[str, Tensor]


class Stack:
    """The jobs of a chunk while they train.

    What all jobs share, such as the received model as a frozen copy, is held once.

    Args:
        tasks: at least two jobs that take the same local step.
        model: the skeleton.

    Attributes:
        tasks: the jobs; row i is the i-th.
        taken: steps taken so far by the longest job.
    """

    def __init__(self, tasks: Sequence[JobTask], model: BlockModel) -> None:
        self.tasks = tasks
        self.taken = 0
        self._model = model
        first, layout = tasks[0], model.layout
        starts = [layout.split(task.start) for task in tasks]
        self._parameters = torch.stack([parameters for parameters, _ in starts])
        self._buffers = torch.stack([buffers for _, buffers in starts])
        # Row by row, because the number of a client's steps may be part of it (FedADC).
        memories = [
            task.rule.begin(received, task.vectors, task.options, task.steps)
            for task, (received, _) in zip(tasks, starts, strict=True)
        ]
        self._memory = {name: torch.stack([memory[name] for memory in memories]) for name in memories[0]}
        self._shared: dict[str, dict[str, Tensor]] = {}
        self._own: dict[str, dict[str, Tensor]] = {}
        for kind in ("frozen", "vectors", "facts"):
            columns = {name: [getattr(task, kind)[name] for task in tasks] for name in getattr(first, kind)}
            alike = {name: all(_same(each, tensors[0]) for each in tensors) for name, tensors in columns.items()}
            self._shared[kind] = {name: tensors[0] for name, tensors in columns.items() if alike[name]}
            self._own[kind] = {name: torch.stack(tensors) for name, tensors in columns.items() if not alike[name]}
        self._draws: list[Callable[[int], Named] | None] = [draws_of(task) for task in tasks]
        self._losses: list[list[Tensor]] = [[] for _ in tasks]
        self._sizes: list[list[int]] = [[] for _ in tasks]
        self._gradient = torch.func.vmap(torch.func.grad(self._loss, has_aux=True))

    def step(self, rows: list[int], batches: Sequence[Batch], extra: int) -> None:
        """One local step of the jobs ``rows`` on minibatches of one size; ``extra`` more that change nothing."""
        size, first = len(batches[0].labels), self.tasks[0]
        padding = [rows[-1]] * extra
        whole = rows == list(range(len(self.tasks))) and not extra
        index = None if whole else torch.tensor(rows + padding, device=self._parameters.device)

        def chosen(stacked: Tensor) -> Tensor:
            return stacked if index is None else stacked.index_select(0, index)

        memory = {name: chosen(value) for name, value in self._memory.items()}
        parameters, buffers = chosen(self._parameters), chosen(self._buffers)
        own = {kind: {name: chosen(value) for name, value in named.items()} for kind, named in self._own.items()}
        drawn = [{} if draw is None else draw(size) for draw in (self._draws[row] for row in rows)]
        draws = {name: _stacked([one[name] for one in drawn], extra) for name in drawn[0]}
        inputs = _stacked([batch.inputs for batch in batches], extra)
        labels = _stacked([batch.labels for batch in batches], extra)
        point = first.rule.point(parameters, memory, first.lr)
        gradient, (losses, buffers) = self._gradient(point, buffers, inputs, labels, own, draws)
        parameters = first.rule.update(parameters, gradient.detach(), memory, first.options, first.lr)
        if index is None:
            self._parameters, self._buffers, self._memory = parameters, buffers, memory
        else:
            real, count = index[: len(rows)], len(rows)
            self._parameters.index_copy_(0, real, parameters[:count])
            self._buffers.index_copy_(0, real, buffers[:count])
            for name, value in memory.items():
                self._memory[name].index_copy_(0, real, value[:count])
        for row, loss in zip(rows, losses, strict=False):
            self._losses[row].append(loss)
            self._sizes[row].append(size)

    def results(self) -> list[JobResult]:
        """What the jobs came to.

        Raises:
            ValueError: the data gave a job fewer minibatches than it has steps.
        """
        made = []
        for row, (task, parameters, buffers, losses, sizes) in enumerate(
            zip(self.tasks, self._parameters, self._buffers, self._losses, self._sizes, strict=True)
        ):
            if not losses or len(losses) != task.steps:
                raise ValueError(f"the data gave {len(losses)} batches for {task.steps} local steps")
            # Copies: a view in a client's state would keep the whole stack alive.
            kept = {name: self._memory[name][row].clone() for name in task.rule.kept}
            made.append(JobResult(torch.cat([parameters, buffers]), torch.stack(losses), tuple(sizes), kept))
        return made

    def _loss(  # noqa: PLR0917  (vmap passes by position)
        self,
        parameters: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        labels: Tensor,
        own: Mapping[str, Named],
        draws: Named,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One client's loss; beside it its cross-entropy, and its buffers after the forward pass."""
        task, layout = self.tasks[0], self._model.layout
        buffers = buffers.clone()
        named = {kind: {**self._shared[kind], **own[kind]} for kind in self._shared}
        context = Context(
            model=self._model,
            frozen={name: layout.weights(*layout.split(vector)) for name, vector in named["frozen"].items()},
            vectors=named["vectors"],
            client=named["facts"],
            alpha=task.alpha,
            draws=draws,
        )
        loss = task.objective.loss(layout.weights(parameters, buffers), Batch(inputs, labels), context)
        # A loss without parameters has gradient zero, and torch.func wants a path to them.
        total = loss.total + 0 * parameters[0]
        return total, (loss.cross_entropy.detach(), buffers.detach())


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one in memory."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def _stacked(tensors: Sequence[Tensor], extra: int) -> Tensor:
    """A row for each tensor, and the last one again ``extra`` times."""
    return torch.stack([*tensors, *[tensors[-1]] * extra])

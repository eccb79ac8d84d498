"""The engine for accelerators: one call runs the local steps of many clients on stacked parameters."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from edgefl.cost.measure import Step, measure
from edgefl.errors import Note, in_words
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import Batch
from edgefl.models.block_model import BlockModel
from edgefl.models.comparison import close
from edgefl.models.data_dependence import DataDependentError
from edgefl.models.mode import using
from edgefl.torch_settings import Precision
from edgefl.training import accelerator
from edgefl.training.accelerator import Replay
from edgefl.training.batched.stack import Stack
from edgefl.training.engine_spec import ENGINES, EngineEntry, exact_arithmetic
from edgefl.training.engines.sequential import TRAINING, SequentialEngine, train_job
from edgefl.training.faults import TrainingFault
from edgefl.training.job import Evaluation
from edgefl.training.job_task import ClientData, JobResult, JobTask

KEPT_STACKS = 2
"""Number of chunks whose memory is kept for replay: one for a cohort's full chunks, one for its last chunk."""


WIDEST = 64
"""Maximum number of jobs in a chunk: with more, an accelerator is already busy and only memory use grows."""

HOST_BYTES = 1 << 30

DEVICE_SHARE = 0.3
"""Share of an accelerator's memory for one chunk: two chunks may be kept, and data and kernels need the rest."""

LARGE_FLOPS = 1e9
"""Floating-point operations of a convolution from which on clients train one after another on CUDA.

One client's convolution of this size keeps the device busy, and the grouped one of several is slower than theirs: those
of ResNet-18 with 50 images have 4e9 and halve the speed, those of the small CNN have 1e8 at most and gain tenfold.
"""

MARGIN = 2
"""Ratio of bytes held to bytes counted: stacks, their gathered rows, and copies made by batching."""


class BatchedEngine:
    """Trains chunks of jobs side by side in single calls (``torch.func.vmap``).

    A chunk contains jobs with the same local step: the same objective, rule, options, learning rate and number of
    received blocks. In each step, one call runs all jobs of the chunk that are not finished and whose minibatches have
    the same size, padded to at least 2 rows (:func:`~edgefl.training.batched.stack.padded`), because a single row
    uses other kernels. The division into chunks depends only on the jobs and on the device's memory. A single job, jobs
    whose random draws decide shapes (GradAug), and jobs whose step depends on data are trained one after another.

    On CUDA, steps of a whole chunk are replayed as CUDA graphs. The memory of the last chunks is kept, so graphs are
    reused in later rounds; for rules that do not accept the learning rate as a tensor, as long as it does not change.

    Results agree with the sequential engine's within rounding; they are not bit-identical.
    """

    def __init__(
        self,
        model: BlockModel,
        data: ClientData,
        device: torch.device,
        width: int | None = None,  # maximum number of jobs in a chunk; by default chosen by the device's memory
        # repeats the step of a whole chunk; by default chosen by the device
        replay: Callable[[Callable[[], None]], Replay] | None = None,
        *,
        precision: Precision = "float32",
    ) -> None:
        self._model = model
        self._data = data
        self._device = device
        self._precision = precision
        self._reference = SequentialEngine(model, data, precision)
        self._width_given = width
        self._widths: list[tuple[tuple[object, ...], int]] = []  # of each kind of jobs that are stacked
        self._replay = Replay if replay is None and device.type == "cuda" else replay
        self._stacks: list[Stack] = []

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        results: dict[int, JobResult] = {}
        with exact_arithmetic(self._device, tf32=self._precision == "tf32"):
            for chunk in self._chunks(tasks):
                trained = self._chunk([tasks[place] for place in chunk])
                results.update(zip(chunk, trained, strict=True))
        return [results[place] for place in range(len(tasks))]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        return self._reference.evaluate(vector, mode)

    def close(self) -> None:
        self._reference.close()
        self._stacks.clear()

    def _chunks(self, tasks: Sequence[JobTask]) -> Iterator[list[int]]:
        """Longest first within a kind, so that a chunk's jobs end together."""
        kinds: list[tuple[tuple[object, ...], list[int]]] = []
        for place, task in enumerate(tasks):
            kind = _kind(task)
            known = next((places for other, places in kinds if other == kind), None)
            if known is None:
                kinds.append((kind, [place]))
            else:
                known.append(place)
        for _, places in kinds:
            places.sort(key=lambda place: (-tasks[place].steps, tasks[place].client, tasks[place].dispatch))
            with using(**TRAINING):
                width = self._width([tasks[place] for place in places])
            yield from (places[start : start + width] for start in range(0, len(places), width))

    def _width(self, tasks: Sequence[JobTask]) -> int:
        if len(tasks) == 1 or not tasks[0].objective.side_by_side:
            return 1
        known = next((width for kind, width in self._widths if kind == _stacked_kind(tasks[0])), None)
        if known is None:
            known = self._first_width(tasks)
            self._widths.append((_stacked_kind(tasks[0]), known))
        return known

    def _first_width(self, tasks: Sequence[JobTask]) -> int:
        task = tasks[0]
        if self._model.fresh is not None:  # an ordinary module, whose steps may not be stackable
            with exact_arithmetic(self._device):
                # Two jobs at a time: a number near a kink, such as that of a ReLU, may fall on its other side.
                reasons = [self._unlike(pair) for pair in (tasks[:2], tasks[-2:])]
            if "" not in reasons:
                return self._one_at_a_time(task, reasons[0])
        try:
            return self._width_given or fitting(self._model, self._device, task)
        except DataDependentError:
            return 1
        except Exception as error:  # noqa: BLE001  (if its step fails, training it alone tells why)
            why = f"{task.method}: its clients train one at a time, because measuring a step raised {in_words(error)}"
            warnings.warn(why, stacklevel=2)
            return 1

    def _unlike(self, tasks: Sequence[JobTask]) -> str:
        """Why the first step of two jobs, by plain SGD and in float32, is another one side by side; empty if not."""
        trial = [replace(each, rule=Sgd(), steps=1, rates=()) for each in tasks]  # Adam makes much of rounding
        alone = [train_job(each, self._model, self._data).final - each.start for each in trial]
        try:
            stack = Stack(trial, self._model)
            self._steps(stack)
            moved = [found.final - each.start for found, each in zip(stack.results(), trial, strict=True)]
        except torch.OutOfMemoryError:
            return ""  # chunks become smaller
        except Exception as error:  # noqa: BLE001  (whatever PyTorch or the module's code raises)
            return in_words(error)
        return "" if all(map(close, moved, alone)) else "results differ"

    def _one_at_a_time(self, task: JobTask, reason: str) -> int:
        why = f"{task.method}: its clients train one after another, because vmap cannot stack their steps"
        warnings.warn(f"{why} ({reason})", Note, stacklevel=2)
        return 1

    def _chunk(self, tasks: list[JobTask]) -> list[JobResult]:
        if len(tasks) == 1:
            return [self._alone(tasks[0])]
        stack = self._stacked(tasks)
        try:
            with using(**TRAINING):
                self._steps(stack)
            return stack.results()
        except torch.OutOfMemoryError:
            # Other programs may use the device's memory: retry with half as many jobs, down to one job at a time.
            del stack
            self._stacks.clear()
            half = len(tasks) // 2
            return [*self._chunk(tasks[:half]), *self._chunk(tasks[half:])]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._stacks.clear()
            # In a stack, the failing job is unknown; training the jobs one by one raises the fault with its client.
            results = [self._alone(task) for task in tasks]
            # An ordinary module may do something new in a later round.
            if self._model.fresh is not None and isinstance(error, Exception):
                self._widths.insert(0, (_stacked_kind(tasks[0]), self._one_at_a_time(tasks[0], in_words(error))))
                return results
            first, reason = tasks[0], f"{in_words(error)} (only when jobs are batched)"
            raise TrainingFault(first.method, first.client, first.round, stack.taken, reason) from error

    def _alone(self, task: JobTask) -> JobResult:
        return train_job(task, self._model, self._data, precision=self._precision)

    def _stacked(self, tasks: Sequence[JobTask]) -> Stack:
        """For replayed steps, in the memory on which they were recorded."""
        stack = Stack(tasks, self._model, self._precision, repeated=self._replay is not None)
        if self._replay is None:
            return stack
        for kept in self._stacks:
            if _step(kept.tasks[0]) == _step(tasks[0]) and kept.shapes == stack.shapes:
                kept.adopt(stack)
                return kept
        self._stacks = [stack, *self._stacks[: KEPT_STACKS - 1]]
        return stack

    def _steps(self, stack: Stack) -> None:
        together = self._data.side_by_side(stack.tasks)
        if together is not None:
            for each in together:
                stack.step_all(each, self._replay)
                stack.taken += 1
            return
        batches = [iter(self._data.batches(task)) for task in stack.tasks]
        for _ in range(max(task.steps for task in stack.tasks)):
            drawn = [(row, batch) for row, each in enumerate(batches) if (batch := next(each, None)) is not None]
            drawn.sort(key=lambda one: (-len(one[1].labels), one[0]))
            for _, group in groupby(drawn, key=lambda one: len(one[1].labels)):
                members = list(group)
                inputs, labels = (torch.stack(parts) for parts in zip(*(batch for _, batch in members), strict=True))
                if len(members) == len(stack.tasks):
                    stack.step_all(Batch(inputs, labels), self._replay)
                else:
                    stack.step([row for row, _ in members], Batch(inputs, labels))
            stack.taken += 1


def fitting(model: BlockModel, device: torch.device, task: JobTask) -> int:
    """The number of jobs like ``task`` that train side by side, as a power of two; 1 if two do not fit in memory."""
    # The caller may have disabled gradients (aggregation does), but the memory of a step is that of its backward pass.
    with torch.enable_grad():
        step = Step(task.method, task.objective, task.rule, task.options)
        cost = measure(model, step, task.alpha, task.options.step_samples)
    if device.type == "cuda" and any(
        "convolution" in each.name and each.flops > LARGE_FLOPS for each in cost.operators
    ):
        return 1
    one = cost.peak_memory_bytes
    room = DEVICE_SHARE * accelerator.memory_bytes(device) if device.type == "cuda" else HOST_BYTES
    jobs = min(WIDEST, int(room // (MARGIN * max(1, one))))
    return 1 << (jobs.bit_length() - 1) if jobs > 1 else 1


def _stacked_kind(task: JobTask) -> tuple[object, ...]:
    return task.objective, task.rule, task.options, task.alpha


def _kind(task: JobTask) -> tuple[object, ...]:
    return *_step(task), task.lr, task.rates


def _step(task: JobTask) -> tuple[object, ...]:
    lr = () if task.rule.takes_lr_on_device else (task.lr, task.rates)
    return *_stacked_kind(task), *lr


ENGINES.register("batched")(
    EngineEntry(
        lambda given: BatchedEngine(given.model, given.data, given.device, precision=given.precision), alike=False
    )
)

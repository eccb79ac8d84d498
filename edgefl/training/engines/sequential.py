"""The reference engine: clients one after another, each from the received to the final weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from edgefl.errors import in_words
from edgefl.methods.parts.local_step import Trained, local_step
from edgefl.methods.parts.objective import Context, Objective
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import Mode, using
from edgefl.models.random_layers import KEY
from edgefl.randomness import generator
from edgefl.torch_settings import Precision
from edgefl.training.engine_spec import ENGINES, EngineEntry, exact_arithmetic
from edgefl.training.evaluation import BatchScore, evaluate_batches, total
from edgefl.training.faults import TrainingFault
from edgefl.training.job import Evaluation
from edgefl.training.job_task import ClientData, JobResult, JobTask, within

TRAINING = asdict(Mode())
"""The mode at the start of every step, independent of the caller's mode."""


def train_job(task: JobTask, model: BlockModel, data: ClientData, *, precision: Precision = "float32") -> JobResult:
    """Run the job's local steps one after another; a pure function of ``task`` and ``precision``.

    It starts with neutral settings of PyTorch, whatever the caller or another job set. No other thread may use
    ``model`` at the same time: a call inserts weights and removes them again.
    """
    losses: list[Tensor] = []
    try:
        with exact_arithmetic(task.start.device, tf32=precision == "tf32"), using(**TRAINING):
            return _train(task, model, data, precision, losses)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a loss may even call sys.exit
        raise TrainingFault(task.method, task.client, task.round, len(losses), in_words(error)) from error


def _train(task: JobTask, model: BlockModel, data: ClientData, precision: Precision, losses: list[Tensor]) -> JobResult:
    layout = model.layout
    received, first_buffers = layout.split(task.start)
    begun = {name: each.clone() for name, each in task.begun.items()}
    final = begun["final"] if begun else task.start.clone()
    losses += begun.get("cross_entropies", ())
    parameters, buffers = layout.split(final)
    # Copies: a module or a loss that writes into them cannot reach another job.
    frozen = {name: layout.frozen(*layout.split(vector.clone())) for name, vector in task.frozen.items()}
    vectors, facts = ({name: each.clone() for name, each in of.items()} for of in (task.vectors, task.facts))
    context = Context(model, frozen, vectors, facts, task.alpha)
    trained = Trained(task.objective, layout, task.alpha, parameters)
    parameters, leaves = trained.parameters, trained.leaves
    memory = within(begun, "kept") if begun else first_memory(task, received[len(received) - len(parameters) :])
    draw, sizes = draws_of(task, model), list(task.sizes)
    step = partial(local_step, task.objective, task.rule, draw=draw, leaves=leaves, precision=precision)
    rates, taken, last = task.rates or [task.lr] * task.steps, len(sizes), task.until or task.steps
    for batch, lr in zip(islice(data.batches(task), taken, last), rates[taken:last], strict=True):
        parameters, loss = step(parameters, buffers, batch, context, memory, task.options, lr)
        # Kept as a tensor: reading its value would synchronise with the accelerator in every step.
        losses.append(loss.cross_entropy)
        sizes.append(batch.labels.shape[0])
    kept = {name: memory[name] for name in task.rule.kept} if last == task.steps else memory
    if trained.front is not None and last == task.steps:
        # The skeleton's layers may have updated the running statistics of the front, which are not trained.
        buffers[: trained.buffers_before] = first_buffers[: trained.buffers_before]
    if parameters is not trained.parameters:  # the rule does not update in place
        trained.parameters.copy_(parameters)
    return JobResult(final, torch.stack(losses), tuple(sizes), kept)


def first_memory(task: JobTask, received: Tensor) -> dict[str, Tensor]:
    """The rule's local optimizer state before the first step; the rule gets copies, which it may keep and change."""
    vectors = {name: task.vectors[name].clone() for name in sorted(task.rule.vectors)}
    return task.rule.begin(received.clone(), vectors, task.options, task.steps)


def draws_of(task: JobTask, model: BlockModel) -> Callable[[int], Mapping[str, Tensor]] | None:
    """A function from the batch size to a step's random inputs, the objective's and the model's; ``None`` without."""
    if type(task.objective).draw is Objective.draw and not model.random:
        return None
    numbers = generator(task.seed, "objective", task.client, task.dispatch)
    keys = generator(task.seed, "random layers", task.client, task.dispatch)

    def draw(size: int) -> Mapping[str, Tensor]:
        drawn = task.objective.draw(numbers, size)
        if model.random:
            drawn = {**drawn, KEY: torch.tensor(int(keys.integers(2**62)))}
        return {name: tensor.to(task.start.device) for name, tensor in drawn.items()}

    for size in task.sizes:  # again, for the draws of the next steps
        for start in range(0, size, task.options.batch):
            draw(min(task.options.batch, size - start))
    return draw


@dataclass(eq=False)
class SequentialEngine:
    """Trains jobs in the given order, in the calling thread."""

    model: BlockModel
    data: ClientData
    precision: Precision = "float32"

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        return [train_job(task, self.model, self.data, precision=self.precision) for task in tasks]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        return total(self.scores(vector, mode), self.model.task)

    def scores(self, vector: Tensor, mode: Mapping[str, Any], batches: range | None = None) -> list[BatchScore]:
        """The scores of the model on some batches of the evaluation split, by default all."""
        places = self.data.evaluation()
        chosen = places if batches is None else [places[number] for number in batches]
        return evaluate_batches(vector, chosen, self.model, self.data, mode)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


ENGINES.register("sequential")(EngineEntry(lambda given: SequentialEngine(given.model, given.data, given.precision)))

"""The engine for several machines: jobs are distributed over a Ray cluster's CPUs or GPUs."""

import logging
import os
import signal
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.errors import UserError, first_line, optional
from edgefl.hardware import cores
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import Precision
from edgefl.training.engine_spec import ENGINES, EngineEntry
from edgefl.training.engines.sequential import train_job
from edgefl.training.evaluation import BatchScore, evaluate_batches, total
from edgefl.training.faults import TrainingFault
from edgefl.training.job import Evaluation
from edgefl.training.job_task import ClientData, JobResult, JobTask, joined, split

RETRIES = 5
"""Retries on another worker after a task's worker was lost, before the task counts as failed."""


def connected() -> ModuleType:
    """The module ``ray``, connected to a cluster.

    It is the caller's cluster if there is one, else that of ``RAY_ADDRESS``, else a local one with this process's
    cores, which ends with the process. Ray's dashboard and usage reports stay off.

    Tasks whose results are no longer needed run to their end, or end with this process. They are not cancelled: if a
    task ends at the moment of its cancellation, an internal check of Ray (2.60) fails and aborts the calling process.
    """
    ray = optional("ray", "ray", file="--engine ray")
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS")
    in_charge = threading.current_thread() is threading.main_thread()
    stopping = signal.getsignal(signal.SIGTERM) if in_charge else None
    try:
        local = {} if address else {"num_cpus": cores(), "include_dashboard": False}
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        where = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        hint = "; if the cluster asks for a token (ray start does since 2.60), export RAY_AUTH_MODE=token"
        message = f"{where} cannot be used: {first_line(error)}{hint * bool(address)}"
        raise UserError(message, file="--engine ray") from error
    finally:
        if in_charge:
            # Ray replaces the signal handler; restore the command's own one.
            signal.signal(signal.SIGTERM, stopping or signal.SIG_DFL)
    return ray


def needs(ray: ModuleType, device: torch.device) -> dict[str, object]:
    """The resources that a task requests: one CPU, or one GPU if it computes on GPUs."""
    kind, asked = ("CPU", "num_cpus") if device.type == "cpu" else ("GPU", "num_gpus")
    if not ray.cluster_resources().get(kind):
        raise UserError(f"the Ray cluster has no {kind} for training on {device.type}", file="--engine ray")
    amount: dict[str, object] = {"num_cpus": 0, asked: 1}
    # Without max_calls, Ray ends a worker that used a GPU after each task, and the next one imports PyTorch again.
    return {**amount, "max_calls": 0, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}


MODELS_KEPT = 2
"""Number of models with their data that a worker keeps: the scenario's, and one that a method adapted."""


class SharedInputs(NamedTuple):
    """Shared by all jobs: placed in the cluster's object store once, and unpacked once by each worker."""

    model: BlockModel
    data: ClientData
    device: torch.device
    precision: Precision


def train_sent(place: Sequence[Any], bare: JobTask, tensors: Mapping[str, Any]) -> tuple[JobResult, dict[str, Any]]:
    """Train one job, exactly as the sequential engine does; the result without its tensors, and the tensors.

    ``place`` is the reference to the :class:`SharedInputs`, in a list, so that Ray does not unpack it for every job.
    ``tensors`` are the job's tensors, or their references in the object store, by name.
    """
    import ray

    shared = _shared_inputs(place)
    arrays = {name: ray.get(one) if isinstance(one, ray.ObjectRef) else one for name, one in tensors.items()}
    task = joined(bare, {name: unpacked(array, shared.device) for name, array in arrays.items()})
    result, trained = split(train_job(task, shared.model, shared.data, precision=shared.precision))
    return result, {name: packed(tensor) for name, tensor in trained.items()}


def score_batches(
    place: Sequence[Any], vector: NDArray[Any], batches: Sequence[slice], mode: Mapping[str, Any]
) -> list[BatchScore]:
    """The scores of the model ``vector`` on evaluation batches."""
    shared = _shared_inputs(place)
    weights = unpacked(vector, shared.device)
    return evaluate_batches(weights, batches, shared.model, shared.data, mode)


def packed(tensor: Tensor) -> NDArray[Any]:
    """A tensor in the form for sending."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def unpacked(array: NDArray[Any], device: torch.device) -> Tensor:
    """The tensor on ``device``; a copy, because shared memory is read-only."""
    return torch.from_numpy(array.copy()).to(device)


_inputs: OrderedDict[str, SharedInputs] = OrderedDict()


def _shared_inputs(place: Sequence[Any]) -> SharedInputs:
    import ray

    key = place[0].hex()
    if key not in _inputs:
        while len(_inputs) >= MODELS_KEPT:
            _inputs.popitem(last=False)
        _inputs[key] = ray.get(place[0])
    _inputs.move_to_end(key)
    return _inputs[key]


BATCHES_A_PIECE = 16
"""Number of evaluation batches per task, independent of the cluster's size."""


class WorkersLost(Exception):  # noqa: N818  (what happened to them)
    """A task was retried on several workers, and all of them were lost."""


class RayEngine:
    """Trains each job by itself on one CPU, with one intra-op thread, or on one GPU of a Ray cluster.

    A job runs the sequential engine's code and is never split or merged, so on processors of one kind the results are
    bit-identical to the sequential engine's, for any number of workers. Model and data are placed in the cluster's
    object store once; a worker unpacks them at its first job. A tensor that several jobs read, such as the server's
    model, is sent once. If a worker or its machine is lost, Ray reruns its jobs on other workers. After a fault the
    running jobs are not cancelled, see :func:`~edgefl.training.engines.ray.connected`.

    ``device`` is the kind of the cluster's processors to use, and the device of the results.
    """

    def __init__(
        self, model: BlockModel, data: ClientData, device: torch.device, precision: Precision = "float32"
    ) -> None:
        self._ray = connected()
        self._data = data
        self._device = device
        asked = needs(self._ray, device)
        self._train = self._ray.remote(**asked)(train_sent)
        self._score = self._ray.remote(**asked)(score_batches)
        self._task = model.task
        self._place = [self._ray.put(SharedInputs(model, data, device, precision))]

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        sent = self._sent(tasks)
        order = sorted(range(len(tasks)), key=lambda index: -tasks[index].steps)
        begun = {index: self._train.remote(self._place, *sent[index]) for index in order}
        return [self._fetched(begun[index], task) for index, task in enumerate(tasks)]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Metric and mean loss on the evaluation split; batches are summed in their order."""
        batches = self._data.evaluation()
        pieces = [batches[start : start + BATCHES_A_PIECE] for start in range(0, len(batches), BATCHES_A_PIECE)]
        sent = self._ray.put(packed(vector))
        begun = [self._score.remote(self._place, sent, piece, dict(mode)) for piece in pieces]
        return total([score for reference in begun for score in self._answer(reference)], self._task)

    def close(self) -> None:
        """Delete model and data from the cluster; the connection stays open for the next engine."""
        self._place = []

    def _sent(self, tasks: Sequence[JobTask]) -> list[tuple[JobTask, dict[str, Any]]]:
        parts = [split(task) for task in tasks]
        readers = Counter(id(tensor) for _, tensors in parts for tensor in tensors.values())
        placed: dict[int, Any] = {}

        def sent(tensor: Tensor) -> Any:
            if readers[id(tensor)] == 1:
                return packed(tensor)
            if id(tensor) not in placed:
                placed[id(tensor)] = self._ray.put(packed(tensor))
            return placed[id(tensor)]

        return [(bare, {name: sent(tensor) for name, tensor in tensors.items()}) for bare, tensors in parts]

    def _fetched(self, reference: Any, task: JobTask) -> JobResult:
        try:
            bare, arrays = self._answer(reference)
        except TrainingFault:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, WorkersLost) else f"{type(error).__name__}: {error}"
            raise TrainingFault(task.method, task.client, task.round, 0, reason) from error
        result: JobResult = joined(bare, {name: unpacked(array, self._device) for name, array in arrays.items()})
        return result

    def _answer(self, reference: Any) -> Any:
        """Its exception is raised unchanged, without Ray's wrapper."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise WorkersLost(f"its worker was lost {RETRIES + 1} times ({type(error).__name__})") from error


ENGINES.register("ray")(
    EngineEntry(lambda given: RayEngine(given.model, given.data, given.device, given.precision), elsewhere=True)
)

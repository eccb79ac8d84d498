"""The code that a worker process runs: it trains jobs and evaluates batches exactly as the sequential engine does."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from edgefl.errors import EdgeflError
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import Precision
from edgefl.training.engines.sequential import SequentialEngine, train_job
from edgefl.training.evaluation import BatchScore
from edgefl.training.job_task import ClientData, JobResult, JobTask, joined, split
from edgefl.training.parallel.shared_memory import Region, Sent, Token, load, mapped, received


class Unreadable(EdgeflError):  # noqa: N818  (what it is)
    """A received object cannot be unpickled; for example, its class cannot be imported."""


class SharedInputs(NamedTuple):
    """Shared by all jobs of an engine: model and data, and the buffer for tensors with its size."""

    model: Token
    data: Token
    buffer: Token
    size: int
    precision: Precision


class Job(NamedTuple):
    """A job for sending: its method, the fields specific to the job, its tensors, and the region for its result."""

    method: bytes
    plain: Mapping[str, Any]
    tensors: Mapping[str, Sent]
    region: tuple[int, int]


def _kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which makes the same object only once."""

    @lru_cache(maxsize=8)
    def kept(*key: Any) -> Any:
        try:
            return make(*key)
        except Exception as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error

    return kept


_load, _mapped, _unpickled = _kept(load), _kept(mapped), _kept(pickle.loads)


def _opened(shared: SharedInputs) -> tuple[BlockModel, ClientData, Tensor]:
    return _load(shared.model), _load(shared.data), _mapped(shared.buffer, shared.size)


def train(shared: SharedInputs, job: Job) -> tuple[JobResult, dict[str, Sent]]:
    """Train one job; the result without its tensors, and the tensors."""
    model, data, memory = _opened(shared)
    method: JobTask = _unpickled(job.method)
    task = replace(method, **job.plain)
    task = joined(task, {name: received(each, memory) for name, each in job.tensors.items()})
    result, tensors = split(train_job(task, model, data, precision=shared.precision))
    # The job has copied what it read there.
    region = Region(memory, *job.region)
    return result, {name: region.put(each) for name, each in tensors.items()}


def score(shared: SharedInputs, vector: Sent, batches: range, mode: bytes) -> list[BatchScore]:
    """Evaluate the model ``vector`` on some batches of the evaluation split, in a pickled mode."""
    model, data, memory = _opened(shared)
    return SequentialEngine(model, data).scores(received(vector, memory), _unpickled(mode), batches)

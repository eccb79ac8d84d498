"""A client's training process: trains jobs as the coordinator asks, and reports when they are done.

A client of the scenario has the process only while it trains. The numbers that result are discarded: those of a run
come from its engine, so that they do not depend on time.
"""

import json
import pickle
import select
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from edgefl.data.federated import FederatedData, load_federated
from edgefl.experiment.wiring import recipe_of
from edgefl.input_file import code_files
from edgefl.methods.parts.objective import Batch
from edgefl.models.registry import build_model
from edgefl.scenario import Scenario
from edgefl.training.client_data import ClientData
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.faults import TrainingFault
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import JobTask
from edgefl.user_code import allow

WARM_UP_STEPS = 4
"""Steps before the first job: the first ones of a process take longer."""


class Plan(NamedTuple):
    """What a training process gets at its start."""

    scenario: Scenario
    label: str
    seed: int
    alpha: int


class _Stopped(Exception):  # noqa: N818  (what happened)
    """The coordinator has stopped the job."""


class _StoppableData(ClientData):
    """The clients' data; before each batch it looks for an order to stop."""

    def __init__(self, data: FederatedData, control: socket.socket) -> None:
        super().__init__(data)
        self._control = control

    def batches(self, task: JobTask) -> Iterator[Batch]:
        for batch in super().batches(task):
            if select.select([self._control], [], [], 0.0)[0]:
                raise _Stopped
            yield batch


class Trainer:
    """Trains jobs of one run, each from the initial model: the operators of a step do not depend on the numbers."""

    def __init__(self, plan: Plan, control: socket.socket) -> None:
        scenario, self._plan = plan.scenario, plan
        for file in code_files(scenario).values():
            allow(file)  # the simulation before has executed it
        data = load_federated(scenario.data, plan.seed, "cpu", scenario.evaluation.split)
        model = build_model(scenario.model.spec, data.shape, data.classes, data.train.task, tokens=data.tokens)
        engine = EngineSpec(kind="sequential", precision=scenario.training.engine.precision)
        core = TrainingCore(_StoppableData(data, control), model, plan.seed, engine=engine)
        self._learner = core.learner(recipe_of(scenario, scenario.method(plan.label)))

    def warm_up(self) -> None:
        """Train a few steps of the client with the most samples, so that its steps have the full batch size."""
        data = self._learner.data
        client = max(range(data.clients), key=data.samples)
        self.train(client=client, round=0, dispatch=0, alpha=self._plan.alpha, steps=WARM_UP_STEPS)

    def train(self, *, client: int, round: int, dispatch: int, alpha: int, steps: int, level: int = 0) -> bool:
        """Train a job; return whether it was not stopped."""
        id = JobId(self._plan.label, self._plan.seed, client, dispatch)
        try:
            self._learner.rehearse(TrainingJob(id, 0, round, alpha, steps, level=level))
        except TrainingFault as fault:
            if isinstance(fault.__cause__, _Stopped):
                return False
            raise
        return True


def _live(control: socket.socket, orders: Iterable[bytes], name: str, plan: Plan) -> None:
    def report(**facts: Any) -> None:
        control.sendall(json.dumps(facts).encode() + b"\n")

    trainer = Trainer(plan, control)
    trainer.warm_up()
    report(node=name)
    for line in orders:
        order = json.loads(line)
        if order.pop("do") == "train":
            number = order.pop("number")
            began, used = time.monotonic(), time.process_time()
            trainer.train(**order)
            ended, used = time.monotonic(), time.process_time() - used
            report(trained=number, seconds=ended - began, used=used, at=ended)


def main() -> None:
    """``python -m edgefl.emulation.trainer NAME COORDINATOR``, with the pickled plan on standard input."""
    name, coordinator = sys.argv[1:]
    plan = pickle.load(sys.stdin.buffer)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control, suppress(ConnectionError, BrokenPipeError):
        control.connect(coordinator)
        # Unbuffered: what a buffer has read, `select` does not see.
        with control.makefile("rb", buffering=0) as orders:
            _live(control, orders, name, plan)


if __name__ == "__main__":
    main()

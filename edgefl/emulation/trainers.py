"""Training processes under CPU quotas that stand for clients' devices; their numbers are discarded."""

import json
import os
import pickle
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import cloudpickle
import simpy

from edgefl.cpu_quota import LEAST, MOST, CpuQuota
from edgefl.data.federated import FederatedData, load_federated
from edgefl.emulation.nodes import Nodes, python
from edgefl.emulation.wiring import TRAINER
from edgefl.errors import UserError
from edgefl.experiment.wiring import recipe_of
from edgefl.fleet import FleetAssignment, assign
from edgefl.input_file import code_files
from edgefl.methods.parts.objective import Batch
from edgefl.models.registry import build_model
from edgefl.scenario import Scenario
from edgefl.simulation.cost_specs import MeasuredCost
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.faults import TrainingFault
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import ClientData, JobTask
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
    """``python -m edgefl.emulation.trainers NAME COORDINATOR``, with the pickled plan on standard input."""
    name, coordinator = sys.argv[1:]
    plan = pickle.load(sys.stdin.buffer)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control, suppress(ConnectionError, BrokenPipeError):
        control.connect(coordinator)
        # Unbuffered: what a buffer has read, `select` does not see.
        with control.makefile("rb", buffering=0) as orders:
            _live(control, orders, name, plan)


START_SECONDS = 300.0
"""For the processes to read their data and to train their first steps."""

STOP_SECONDS = 60.0
"""For a process without a quota to end a job at its next step."""


class _Running(NamedTuple):
    """``ended`` triggers at the end of the job; None if it was stopped."""

    job: JobId
    trainer: str
    quota: float
    ended: simpy.Event | None


class Trainers:
    """Trains jobs in processes of ``groups``, each for one client after another, under the client's quota."""

    def __init__(self, groups: Mapping[str, CpuQuota], quotas: Sequence[float], nodes: Nodes) -> None:
        self._groups, self._quotas, self._nodes = groups, quotas, nodes
        self._free = list(groups)
        self._running: dict[int, _Running] = {}
        self._started = 0
        # Seconds on a processor for which jobs were trained that were not stopped, and as many as their quotas allow.
        self.used = self.granted = 0.0

    @property
    def share_of_quotas(self) -> float:
        """The part of its quotas' processor time that training got."""
        return self.used / self.granted if self.granted else 1.0

    @property
    def busy(self) -> bool:
        """True if a job is being trained whose end has an effect."""
        return any(each.ended is not None for each in self._running.values())

    def train(self, job: TrainingJob, slowdown: float, ended: simpy.Event) -> None:
        """Start to train a job; ``slowdown`` is how many times as long as usual its client's device takes now."""
        if not self._free:
            # Each process trains, or ends a job that was stopped.
            number = next(number for number, each in self._running.items() if each.ended is None)
            self.trained(self._nodes.wait_for("trained", number, STOP_SECONDS))
        name = self._free.pop()
        quota = min(max(self._quotas[job.id.client] / slowdown, LEAST), MOST)
        self._groups[name].set(quota)
        self._started += 1
        self._running[self._started] = _Running(job.id, name, quota, ended)
        self._nodes.order(
            name,
            do="train",
            number=self._started,
            client=job.id.client,
            round=job.round,
            dispatch=job.id.dispatch,
            alpha=job.alpha,
            level=job.level,
            steps=job.steps,
        )

    def stop(self, job: JobId) -> None:
        """End a job at its next step; its event never triggers."""
        number = next(number for number, each in self._running.items() if each.job == job and each.ended is not None)
        name = self._running[number].trainer
        self._running[number] = self._running[number]._replace(ended=None)
        self._groups[name].set(None)  # the step that is in progress ends soon
        self._nodes.order(name, do="stop")

    def trained(self, report: dict[str, Any]) -> None:
        running = self._running.pop(report["trained"])
        self._free.append(running.trainer)
        if running.ended is not None:
            self.used += report["used"]
            self.granted += running.quota * report["seconds"]
            running.ended.succeed()


@contextmanager
def started_trainers(plan: Plan, count: int, quotas: Sequence[float], nodes: Nodes) -> Iterator[Trainers]:
    """So many processes, which end with the block; their messages are written next to the nodes' path."""

    def end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    with ExitStack() as stack:
        groups = {f"{TRAINER}{number}": stack.enter_context(CpuQuota()) for number in range(count)}
        processes = nodes.start(
            [[*python("trainers"), name, str(nodes.path)] for name in groups],
            cloudpickle.dumps(plan),
            end,
            stack,
            names=groups,
            seconds=START_SECONDS,
            messages=nodes.path.with_name("trainers"),
        )
        for group, process in zip(groups.values(), processes, strict=True):
            group.add(process.pid)
        yield Trainers(groups, quotas, nodes)


def quotas_of(fleet: FleetAssignment, dilation: float) -> list[float]:
    """The part of one processor for each client; a slower clock divides it."""
    for profile in fleet.profiles:
        quota = profile.compute.cpu_quota
        if quota is None:
            raise UserError(
                f"--compute real needs a CPU quota for each device, and '{profile.name}' has none; expected a profile "
                "of `edgefl profile measure --cpu-quota Q`",
                field="fleet",
            )
        if not LEAST <= quota / dilation <= MOST:
            raise UserError(
                f"expected quotas from {LEAST:g} to {MOST:g} processors, found {quota / dilation:g} for "
                f"'{profile.name}'; it is compute.cpu_quota / --dilate",
                field="fleet",
            )
    quotas = [profile.compute.cpu_quota or 0.0 for profile in fleet.profiles]
    return [quotas[group] / dilation for group in fleet.group.tolist()]


def check_real_training(scenario: Scenario, dilation: float) -> None:
    """Refuse a scenario whose clients cannot train in real time here."""
    if not isinstance(scenario.cost, MeasuredCost):
        raise UserError("expected kind: measured with --compute real: training takes its own time", field="cost")
    processors, at_a_time = os.cpu_count() or 1, scenario.protocol.under_way(scenario.training.cohort)
    for seed in scenario.seeds:
        quotas = quotas_of(assign(scenario.fleet, scenario.data.clients, seed), dilation)
        needed = sum(sorted(quotas, reverse=True)[:at_a_time])
        if needed > processors:
            raise UserError(
                f"clients that train at the same time need {needed:.3g} processors, this machine has {processors}; "
                f"expected --dilate {needed / processors * dilation:.3g} or more, or a smaller cohort",
                field="training.cohort",
            )
    with CpuQuota():
        pass


if __name__ == "__main__":
    main()

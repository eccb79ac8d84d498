"""A finished run, ready to be executed again with its own numbers instead of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.inputs import (
    DATA,
    SCENARIO,
    Input,
    Inputs,
    allow_code,
    check_inputs,
    digest_of_scenario,
    digests,
)
from edgefl.experiment.recording import Recording, read_recording
from edgefl.experiment.wiring import SharedWorld, shared_world, step_costs
from edgefl.flower.scenario import app_scenario_of
from edgefl.record import RunPaths
from edgefl.record.costs import read_costs
from edgefl.record.summary import SeedResult
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.protocol_specs import AsynchronousSpec, RoundsSpec
from edgefl.yaml_file import read_yaml

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData


class FinishedRun:
    """The scenario, the training and the step costs of a run directory.

    Args:
        path: the run directory.
        methods: labels; all of the run's if not given.

    Attributes:
        path: the run directory.
        paths: its files.
        scenario: its resolved scenario.
        labels: the methods, in the scenario's order.
        entries: their entries of the summary, one for each seed, by label.
        costs: their step costs, by label.
        software: versions of the packages on which their training depended, by name.

    Raises:
        UserError: no finished run, a run of a Flower app, a damaged file, or a protocol under which the order of
            arrivals decides what is aggregated.
    """

    def __init__(self, path: Path, methods: Sequence[str] | None = None, *, trust: bool = False) -> None:
        self.path = path
        self.paths = RunPaths(path)
        summary = read_run_summary(path)
        if app_scenario_of(path) is not None:
            raise UserError(
                "a run of a Flower app cannot answer this, because its app decides; only edgefl replay simulates it "
                "elsewhere",
                file=str(path),
            )
        self.entries = summary.methods
        self.software = summary.software
        self._summary = summary
        for label in methods or ():
            if label not in self.entries:
                raise UserError(f"the run has no method '{label}'; {nearest(label, self.entries)}", file=str(path))
        self.labels = [label for label in self.entries if not methods or label in methods]
        self.scenario = load_scenario(self.paths.scenario, run_code=False)
        allow_code(self.scenario, summary.inputs, path, trust=trust)
        self._files = Inputs(self.scenario, path).files
        self._check_scenario()
        self._check_protocol()
        self._data: dict[int, FederatedData | None] = {}
        steps = read_costs(self.paths.costs)
        for label in self.labels:
            if label not in steps:
                raise UserError(f"expected the steps of '{label}', found none", file=str(self.paths.costs))
        self.costs = step_costs(self.scenario, self.labels, steps)

    def inputs(self, scenario: Scenario) -> dict[str, str]:
        """The digests of a replay's inputs under this scenario, and of the run's training inputs.

        Raises:
            UserError: a file that the scenario shares with the run's own has changed since the run.
        """
        inputs = Inputs(scenario, self.path)
        found = inputs.now(trains=any(self._reads_labels(entry.seed) for entry in self._all_entries()))
        shared = {field: inputs.files.get(field) == self._files.get(field) for field in found}
        self._check_inputs({field: each for field, each in found.items() if shared[field] and field != SCENARIO})
        known = self._summary.inputs
        trained_on = {DATA: known[DATA]} if DATA in known else {}
        return digests(found) | trained_on

    def recording(self, label: str, seed: int, *, untrained: bool = False) -> Recording:
        """The recorded training of one method with one seed.

        Args:
            label: the method.
            seed: the seed.
            untrained: accept a run after ``--no-train``, whose log has decisions only.

        Raises:
            UserError: the log cannot be read, a fault ended the run, or nothing was trained in it.
        """
        recording = read_recording(self.paths.of(label, seed).events)
        if recording.reason == "fault" or not (recording.evaluations or untrained):
            what = "a fault ended it" if recording.reason == "fault" else "it has no training"
            raise UserError(
                f"{what}, so there is nothing to replay", file=str(self.path), field=f"{label}, seed {seed}"
            )
        return recording

    def world(self, scenario: Scenario, seed: int) -> SharedWorld:
        """The shared world of all methods of a seed, in this scenario or a changed one."""
        return shared_world(scenario, seed, self._labels_of(seed))

    def _all_entries(self) -> list[SeedResult]:
        return [entry for label in self.labels for entry in self.entries[label]]

    def _check_scenario(self) -> None:
        file = self.paths.scenario
        self._check_inputs({SCENARIO: Input(str(file), digest_of_scenario(read_yaml(file)))})

    def _check_inputs(self, found: Mapping[str, Input]) -> None:
        check_inputs(self._summary.inputs, found)

    def _check_protocol(self) -> None:
        protocol = self.scenario.protocol
        decided = None
        if isinstance(protocol, AsynchronousSpec):
            decided = "kind: asynchronous"
        elif isinstance(protocol, RoundsSpec) and protocol.deadline is not None:
            decided = "deadline"
        elif isinstance(protocol, RoundsSpec) and protocol.picked(100) > 100:
            decided = "over_select"
        if decided is not None:
            raise UserError(
                f"{decided}: the aggregated updates depend on arrival times, so the run cannot be replayed: "
                "simulate it instead",
                file=str(self.path),
                field="protocol",
            )

    def _labels_of(self, seed: int) -> FederatedData | None:
        """The data, if a selector reads the classes of clients."""
        if not self._reads_labels(seed):
            return None
        if seed not in self._data:
            from edgefl.data.federated import load_federated
            from edgefl.training.device import choose_device

            scenario = self.scenario
            self._data[seed] = load_federated(scenario.data, seed, choose_device("cpu"), scenario.evaluation.split)
        return self._data[seed]

    def _reads_labels(self, seed: int) -> bool:
        return "label_support" in self.scenario.training.selection.spec.start(seed).reads

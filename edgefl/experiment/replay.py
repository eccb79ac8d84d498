"""``edgefl replay``: a finished run on another network or fleet, without training, where time decided nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError, nearest
from edgefl.experiment.one_run import OneRun
from edgefl.experiment.progress import Silent
from edgefl.experiment.recording import Recording, read_recording
from edgefl.experiment.replayed_learner import ReplayedLearner
from edgefl.experiment.step_costs import RecordedCosts, StepCosts, write_costs
from edgefl.experiment.summary import write_summary
from edgefl.experiment.verify import read_run_summary
from edgefl.experiment.wiring import SharedWorld, recipe_of, shared_world, skeleton
from edgefl.learning.cost.law import CostModel
from edgefl.scenario import Scenario, dump_yaml, load_scenario, resolve, with_overrides
from edgefl.scenario.overrides import Overrides, parse_overrides
from edgefl.simulation.protocol_specs import AsynchronousSpec, SynchronousSpec

if TYPE_CHECKING:
    from edgefl.learning.data.federated import FederatedData

CHANGEABLE = ("network", "fleet", "budgets", "targets", "target_metric", "stop", "name")
"""Sections of a scenario that training does not see."""


class Replay:
    """A finished run, ready to be replayed on other networks.

    Args:
        run: its directory.
        methods: labels; all of the run's if not given.

    Raises:
        UserError: no finished run, nothing was trained in it, a file is damaged, or a decision in it read a time.
    """

    def __init__(self, run: Path, methods: Sequence[str] | None = None) -> None:
        self._run = run
        self._entries: dict[str, list[dict[str, Any]]] = read_run_summary(run)["methods"]
        for label in methods or ():
            if label not in self._entries:
                raise UserError(f"the run has no method '{label}'; {nearest(label, self._entries)}", file=str(run))
        self._labels = [label for label in self._entries if not methods or label in methods]
        self._scenario = load_scenario(run / "scenario.yaml")
        self._check_protocol()
        self._recordings = {
            (label, int(entry["seed"])): self._recording(label, int(entry["seed"]))
            for label in self._labels
            for entry in self._entries[label]
        }
        self._data: dict[int, FederatedData | None] = {}
        self._costs = self._step_costs()

    def on(self, changes: Overrides, out: Path) -> Path:
        """Replay the run with changes to its scenario, and write a run directory like a full run's.

        Args:
            changes: by path, below one of :data:`CHANGEABLE`.
            out: the run directory; must not exist.

        Raises:
            UserError: a change does not fit or concerns training, or the other network or fleet would change what is
                trained; nothing was written then.
        """
        for change in parse_overrides(changes):
            if change.path[0] not in CHANGEABLE:
                raise UserError(
                    f"training depends on '{change.path[0]}'; a replay may change {', '.join(CHANGEABLE)}",
                    file=change.origin,
                    field=".".join(change.path),
                )
        scenario = with_overrides(self._scenario, changes)
        _check_budgets(scenario)
        if out.exists():
            raise UserError("expected a folder that does not exist yet", file=str(out))
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", file=str(out)) from None
        try:
            self._write(scenario, unfinished)
            unfinished.chmod(0o755)
            return unfinished.rename(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _write(self, scenario: Scenario, folder: Path) -> None:
        (folder / "scenario.yaml").write_text(dump_yaml(resolve(scenario)), encoding="utf-8")
        worlds: dict[int, SharedWorld] = {}
        entries: dict[str, list[dict[str, Any]]] = {}
        for label in self._labels:
            entries[label] = []
            for entry in self._entries[label]:
                seed = int(entry["seed"])
                if seed not in worlds:
                    worlds[seed] = shared_world(scenario, seed, self._labels_of(seed))
                one = OneRun(scenario, scenario.method(label), worlds[seed], self._costs[label], folder)
                learner = ReplayedLearner(
                    self._recordings[label, seed], label, stateful=self._costs[label].method.state is not None
                )
                replayed = one.replayed(Silent(), learner)
                if replayed["rounds"] == entry["rounds"]:
                    # The last model is the same, and so is whatever was measured of it.
                    replayed |= {name: entry[name] for name in ("clients", "personalisation") if name in entry}
                    self._keep_models(f"{label}/seed-{seed}", folder)
                entries[label].append(replayed)
        write_costs(self._costs, folder / "costs.json")
        write_summary(scenario.name, entries, folder / "summary.json")

    def _keep_models(self, place: str, folder: Path) -> None:
        for path in (self._run / place).iterdir():
            if path.is_file() and path.name not in ("rounds.parquet", "events.parquet"):
                shutil.copyfile(path, folder / place / path.name)

    def _check_protocol(self) -> None:
        protocol = self._scenario.protocol
        decided = None
        if isinstance(protocol, AsynchronousSpec):
            decided = "kind: asynchronous"
        elif isinstance(protocol, SynchronousSpec) and protocol.deadline is not None:
            decided = "deadline"
        elif isinstance(protocol, SynchronousSpec) and protocol.picked(100) > 100:
            decided = "over_select"
        if decided is not None:
            raise UserError(
                f"{decided}: which updates are aggregated depends on when they arrive, so the run cannot be replayed: "
                "simulate it instead",
                file=str(self._run),
                field="protocol",
            )

    def _recording(self, label: str, seed: int) -> Recording:
        recording = read_recording(self._run / label / f"seed-{seed}" / "events.parquet")
        place = f"{label}, seed {seed}"
        if recording.timed:
            round, what, reads = recording.timed[0]
            raise UserError(
                f"the decision on {what} in round {round + 1} read {' and '.join(reads)}, which depend on time, so the "
                "run cannot be replayed: simulate it instead, or choose other methods with --method",
                file=str(self._run),
                field=place,
            )
        if recording.reason == "fault" or not recording.evaluations:
            what = "a fault ended it" if recording.reason == "fault" else "nothing was trained in it"
            raise UserError(f"{what}, so there is nothing to replay", file=str(self._run), field=place)
        return recording

    def _step_costs(self) -> dict[str, StepCosts]:
        path = self._run / "costs.json"
        model = CostModel(skeleton(self._scenario))
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return {
                label: RecordedCosts(model, recipe_of(self._scenario, self._scenario.method(label)), known[label])
                for label in self._labels
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"cannot be read: {error}", file=str(path)) from None

    def _labels_of(self, seed: int) -> FederatedData | None:
        """The data, where a selector reads which classes clients hold."""
        if "label_support" not in self._scenario.training.selection.spec.start(seed).reads:
            return None
        if seed not in self._data:
            from edgefl.learning.data.federated import load_federated
            from edgefl.learning.engine.device import choose_device

            scenario = self._scenario
            self._data[seed] = load_federated(scenario.data, seed, choose_device("cpu"), scenario.evaluation.split)
        return self._data[seed]


def replay(run: Path, changes: Overrides, out: Path, *, methods: Sequence[str] | None = None) -> Path:
    """Replay a finished run once; see :class:`Replay`."""
    return Replay(run, methods).on(changes, out)


def _check_budgets(scenario: Scenario) -> None:
    timed = [kind for kind in scenario.budgets.limits() if kind in ("seconds", "joules")]
    if scenario.stop != "rounds" and timed:
        raise UserError(
            f"the budget on {timed[0]} ends a run by time; --set stop=rounds reports the accuracy at each "
            "budget instead",
            field="stop",
        )

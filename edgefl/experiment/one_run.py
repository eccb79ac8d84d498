"""One run: a method with a seed, from its setup to its entry; resumed from its journal and its checkpoints.

The journal has the events of each round, appended when the round ends. They contain every number from training. A kill
at any moment leaves whole rounds and perhaps a piece of one, which is cut off. On resumption the world derives its rows
again; the journal compares them with the rows written before, and appends the new ones. The learner answers from them
up to the newest checkpoint, and then trains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import pyarrow as pa
from torch import Tensor

from edgefl.cost.measure import StepCost
from edgefl.errors import EdgeflError
from edgefl.experiment import checkpoints
from edgefl.experiment.checkpoints import Checkpoints
from edgefl.experiment.final_models import FinalModels, kept_models_of
from edgefl.experiment.recording import RecordedLearner, recording_of
from edgefl.experiment.round_optimum import optimum_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.experiment.wiring import SharedWorld, limits_of, setup_of, world_for
from edgefl.models.data_dependence import DataDependentError
from edgefl.record import RunPaths
from edgefl.record.events import Event, Listener
from edgefl.record.paths import SeedPaths
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.record.tables import event_file, write_rounds
from edgefl.scenario import Scenario
from edgefl.scenario.methods import ScenarioMethod
from edgefl.simulation.run import Outcome, simulate_run, unbegun_run
from edgefl.simulation.setup import Setup, Testbed
from edgefl.training.faults import PartFault, blaming
from edgefl.training.job import Learner
from edgefl.training.neutral import NeutralLearner

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore
    from edgefl.training.learner import MethodLearner

MakeTestbed = Callable[[Setup, SeedPaths], AbstractContextManager[Testbed]]
"""Makes the real links of a run, for the time of the run, and writes its measurements next to the run's files."""


class OneRun:
    """One run of an experiment, in a folder of its own in the experiment's ``directory``.

    Its listeners are called in this order: what writes and ends the run, and those of the experiment. ``fault`` is
    the error of a part of the method, if it ended the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        method: ScenarioMethod,
        world: SharedWorld,
        costs: StepCosts,
        directory: RunPaths,
        *,
        listeners: Sequence[Listener] = (),
        testbed: MakeTestbed | None = None,
    ) -> None:
        self._testbed = testbed
        self._scenario, self._world = world_for(scenario, world, costs.method)
        self._method = method
        self._costs = costs
        self._paths = directory.make(method.label, world.seed)
        self._followers = listeners
        self._early_end = EarlyEnd()
        self.fault: PartFault | None = None

    def timed(self) -> SeedResult:
        """Simulate without training; an interrupted run starts again, which takes milliseconds per round."""
        return self._entry(self._simulate(NeutralLearner(), trains=False))

    def replayed(self, learner: Learner) -> SeedResult:
        """Simulate with the recorded results of a finished run in place of training."""
        return self._entry(self._simulate(learner, trains=True))

    def trained(self, core: TrainingCore, data: FederatedData) -> SeedResult:
        """Simulate with training, and store the results on disk after every round."""
        scenario, method, seed = self._scenario, self._costs.method, self._world.seed
        models = kept_models_of(scenario)
        try:
            with blaming(self._method.label, 0, "setup"):
                learner = core.learner(method, models)
        except PartFault as fault:
            with event_file(self._paths.events) as table:
                return self._entry(self._unbegun([table, *self._followers], fault))
        final_models = FinalModels(scenario, self._paths, core, data, seed, method, learner, models)
        last = scenario.training.rounds if scenario.personalisation is None else None
        keeps = scenario.keep_models != "none" and self._testbed is None
        paths, label = self._paths, self._method.label
        kept = paths.checkpoint if keeps else None
        with (
            Journal(paths.journal) as journal,
            ResumedLearner(learner, label, journal, paths.checkpoints, last, kept=kept) as resumed,
        ):
            writers = [journal, resumed, final_models]
            outcome = self._simulate(cast("Learner", resumed), trains=True, writers=writers)
        labels = data.evaluation.labels
        counted = data.evaluation.task.counted(labels.cpu().numpy()).sum()
        entry = self._entry(outcome)
        metric = entry.metric.model_copy(update={"samples": len(labels), "labels": int(counted)})
        return entry.model_copy(update={"metric": metric, **final_models.results})

    def _simulate(self, learner: Learner, *, trains: bool, writers: Sequence[Listener] = ()) -> Outcome:
        with event_file(self._paths.events) as table:
            listeners = [self._early_end, *writers, table, *self._followers]
            try:
                with blaming(self._method.label, 0, "setup"):
                    setup = setup_of(
                        self._scenario,
                        self._method,
                        self._world,
                        self._costs,
                        learner=learner,
                        trains=trains,
                        listeners=listeners,
                        cost=self._step_cost,
                    )
            except PartFault as fault:
                return self._unbegun(listeners, fault)
            with ExitStack() as stack:
                testbed = self._testbed and stack.enter_context(self._testbed(setup, self._paths))
                optimum = None if testbed else optimum_of(self._scenario, setup)
                outcome = simulate_run(setup, testbed=testbed, optimum=optimum)
        self.fault = outcome.fault
        return outcome

    def _unbegun(self, listeners: Sequence[Listener], fault: PartFault) -> Outcome:
        self.fault = fault
        return unbegun_run(self._method.label, self._world.seed, limits_of(self._scenario), listeners, fault)

    def _step_cost(self, *key: Any) -> StepCost:
        label, part = self._method.label, "measuring a local step"
        with blaming(label, 0, part):
            try:
                return self._costs.step(*key)
            except DataDependentError as error:
                raise PartFault(label, 0, part, error.reason) from error

    def _entry(self, outcome: Outcome) -> SeedResult:
        write_rounds(outcome.rows, self._paths.rounds)
        block_wise = self._scenario.method(self._method.label).recipe.scheduler is not None
        return summarise(outcome, self._world.seed, block_wise=block_wise, why=self._early_end.why(outcome))


_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_SCHEMA = pa.schema([(name, _TYPES[type(value)]) for name, value in Event(0.0, "run")._asdict().items()])
_HEAD = 8
"""Bytes in front of each round: its size."""


class LogDiffers(EdgeflError):  # noqa: N818  (what it says of the log)
    """A re-executed run differs from the rows in its journal."""


class Journal(Listener):
    """The journal of one run; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("a+b", buffering=0)
        self._ends = [0]  # of each whole round
        size = path.stat().st_size
        while (end := self._end_of_next()) <= size:
            self._ends.append(end)
        self._file.truncate(self._ends[-1])
        self._known = self.rows()
        self._ahead: Event | None = next(self._known, None)
        self._position = 0
        self._rows: list[Event] = []

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def rounds(self) -> int:
        return len(self._ends) - 1

    def rows(self) -> Iterator[Event]:
        """The rows in it, in order."""
        for begin, end in zip(self._ends[:-1], self._ends[1:], strict=True):
            yield from unpacked(os.pread(self._file.fileno(), end - begin - _HEAD, begin + _HEAD))

    def events(self, rows: list[Event]) -> None:
        """Add the next rows; LogDiffers if one that an earlier process also wrote differs from its row."""
        for number, event in enumerate(rows):
            then = self._ahead
            if then is None:
                self._rows += rows[number:]
                return
            # NaN is not equal to itself, but is written in the same way.
            if then != event and packed([then]) != packed([event]):
                was, now = json.dumps(then), json.dumps(event)
                raise LogDiffers(f"event {self._position} was {was}, and is now {now}: the run cannot be resumed")
            self._position += 1
            self._ahead = next(self._known, None)

    def commit(self) -> None:
        """Write the rows of the round that has ended; nothing if an earlier process wrote them."""
        if not self._rows:
            return
        content = packed(self._rows)
        left = memoryview(len(content).to_bytes(_HEAD, "little") + content)
        while left:
            left = left[self._file.write(left) :]
        self._ends.append(self._ends[-1] + _HEAD + len(content))
        self._rows = []

    def _end_of_next(self) -> int:
        head = os.pread(self._file.fileno(), _HEAD, self._ends[-1])
        return self._ends[-1] + _HEAD + int.from_bytes(head, "little")


def packed(events: Sequence[Event]) -> bytes:
    """Rows in the journal's format, an Arrow record batch.

    >>> rows = [Event(0.5, "idle", round=3, client=7, seconds=0.25), Event(1.0, "stop", item="rounds")]
    >>> list(unpacked(packed(rows))) == rows
    True
    """
    arrays = [pa.array(column, field.type) for field, column in zip(_SCHEMA, zip(*events, strict=True), strict=True)]
    content: bytes = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA).serialize().to_pybytes()
    return content


def unpacked(content: bytes) -> Iterator[Event]:
    """The rows of :func:`packed`."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(content), _SCHEMA)
    return map(Event._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


class ResumedLearner(Listener):
    """A :class:`~edgefl.training.job.Learner` that trains with another one and writes checkpoints.

    A resumed run first repeats recorded rounds: up to the newest checkpoint, of round ``until``, answers come from the
    rows of the journal and nothing is trained. Then the checkpoint's tensors are loaded and training continues. It
    commits the journal after every round, so the journal comes before it in the list of listeners. As a context manager
    it completes its last checkpoint. The ``last`` round needs no checkpoint; ``None`` if something is trained after it.
    ``kept`` is the file of the checkpoint that a finished run keeps, if it keeps one.
    """

    def __init__(
        self,
        learner: MethodLearner,
        method: str,
        journal: Journal,
        folder: Path,
        last: int | None = None,
        *,
        kept: Path | None = None,
    ) -> None:
        self._learner = learner
        self._journal = journal
        self._last, self._kept, self._ended = last, kept, 0
        self._checkpoints = Checkpoints(folder)
        self._answers: Learner = learner
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self.until = 0
        found = self._checkpoints.newest()
        # After a power failure the journal may lack the last rounds; then the run is trained from its start.
        if found is not None and found[0] <= journal.rounds:
            self.until, tensors, facts = found
            self._held = tensors, facts
            self._answers = RecordedLearner(recording_of(journal.rows()), method, _missing)

    def __getattr__(self, name: str) -> Any:
        """The methods of a learner are those of the one that answers now."""
        return getattr(self._answers, name)

    def round_ended(self, row: RoundRow) -> None:
        self._ended = row.round
        if self._held is not None:
            if row.round == self.until:
                self._learner.restore(*self._held)
                self._held, self._answers = None, self._learner
            return
        self._journal.commit()
        if row.round % checkpoints.CHECKPOINT_EVERY == 0 and row.round != self._last:
            self._checkpoints.begin(row.round, *self._learner.snapshot())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._checkpoints.__exit__(kind, error, trace)
        if error is None and self._held is not None:
            raise LogDiffers(f"the run ends before round {self.until}, which has a checkpoint: it cannot be resumed")
        if error is None and self._kept is not None:
            self._checkpoints.keep(self._ended, self._kept)


def _missing(name: str) -> LogDiffers:
    return LogDiffers(f"the journal has no {name}, which the run now requires: it cannot be resumed")

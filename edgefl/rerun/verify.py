"""``edgefl verify``: check a run directory against its scenario and the rules of the model.

The laws in :mod:`edgefl.rerun.laws` check whether a log is consistent. If everything in it follows from the
scenario, the run is also simulated again with its recorded training into a temporary folder, and must give the same
rows, rounds and figures.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edgefl.errors import UserError
from edgefl.experiment.final_models import read_model
from edgefl.experiment.inputs import SCENARIO, Input, Inputs, allow_code, in_words, scenario_as_written, software_of
from edgefl.experiment.one_run import OneRun
from edgefl.experiment.recording import RecordedLearner, recording_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import recipe_of, scenario_for, step_costs, world_of
from edgefl.fleet import assign
from edgefl.flower.app import digest_of_app
from edgefl.flower.scenario import AppScenario, app_scenario_of
from edgefl.input_file import code_files
from edgefl.models.layout import digest_of_model
from edgefl.record import RunPaths, SeedPaths
from edgefl.record.costs import read_costs
from edgefl.record.emulation import read_emulation
from edgefl.record.events import Event
from edgefl.record.kinds import EventKind
from edgefl.record.rounds import OWN
from edgefl.record.summary import SeedResult, Summary, read_run
from edgefl.record.tables import read_events, read_parquet
from edgefl.rerun.laws import Record, at, close, violations
from edgefl.scenario import Scenario, load_scenario
from edgefl.torch_settings import neutral_torch
from edgefl.training.faults import NotTrained

_TRAINED: tuple[EventKind, ...] = ("evaluation", "feedback", "diverged")


@neutral_torch()
def verify(run: Path, *, trust: bool = False) -> list[str]:
    """The differences between a run directory and the result of its scenario, as sentences; none if it is correct.

    A run whose scenario has Python files is simulated again only with ``trust``, which executes them.

    Raises:
        UserError: the folder contains no finished run.
    """
    summary, app = read_run(run)[1], app_scenario_of(run)
    scenario = load_scenario(RunPaths(run).scenario, run_code=False) if app is None else app
    if changed := list(_changed_inputs(run, scenario, summary)):
        return changed
    try:
        known = read_costs(RunPaths(run).costs)
    except UserError as error:
        return [f"costs.json cannot be read: {error.message}"]
    costs: dict[str, StepCosts] = {}
    if isinstance(scenario, Scenario) and summary.of_this_version and (trust or not code_files(scenario)):
        scenario = allow_code(scenario, summary.inputs, run, trust=trust)
        costs = step_costs(scenario, summary.methods, known, trains=summary.has_trained)
    found = []
    for label, entries in summary.methods.items():
        for entry in entries:
            broken = _broken(RunPaths(run).of(label, entry.seed), scenario, label, entry, costs.get(label))
            found += [f"{label}, seed {entry.seed}: {text}" for text in broken]
    return found


def why_not_again(run: Path, summary: Summary, *, trust: bool = False) -> str | None:
    """The reason why :func:`verify` does not simulate a run again; ``None`` if it does."""
    if app_scenario_of(run) is not None:
        return "its app is not executed"
    paths = RunPaths(run)
    if any(paths.of(label, each.seed).emulation.exists() for label, found in summary.methods.items() for each in found):
        return "its seconds were measured, and rules of computed seconds were not checked"
    if not summary.of_this_version:
        return f"edgefl {summary.edgefl} wrote it"
    code = code_files(load_scenario(paths.scenario, run_code=False))
    return "its Python files are not executed without --trust" if code and not trust else None


def other_software(run: Path, summary: Summary) -> str | None:
    """The packages that a run was made with, as text, if other versions are installed here."""
    here = software_of(load_scenario(RunPaths(run).scenario, run_code=False))
    return in_words(summary.software) if summary.software and summary.software != here else None


def _changed_inputs(run: Path, scenario: Scenario | AppScenario, summary: Summary) -> Iterator[str]:
    """Inputs that changed since the run; then the log cannot be compared with the scenario."""
    known, scenario_file = summary.inputs, scenario_as_written(run)[SCENARIO]
    if known.get(SCENARIO) != scenario_file.digest:
        yield f"{scenario_file.file} is not the scenario that the run was made from"
        return
    try:
        if isinstance(scenario, AppScenario):
            folders = {field: app for field, app in scenario.apps().items() if Path(app).is_dir()}
            found = {field: Input(app, digest_of_app(app)) for field, app in folders.items()}
        else:
            copies = {field: RunPaths(run).code(field) for field in code_files(scenario)}
            found = {**Inputs(scenario, run).now(trains=False, copies=copies), SCENARIO: scenario_file}
    except UserError as error:
        yield f"an input of the run is missing: {error}"
        return
    for field, each in found.items():
        if known.get(field) != each.digest:
            yield f"{each.file}: {field}: is not the file that the run read"


def _broken(
    paths: SeedPaths, scenario: Scenario | AppScenario, label: str, entry: SeedResult, costs: StepCosts | None
) -> Iterator[str]:
    try:
        record = record_of(paths, scenario, label, entry)
    except UserError as error:
        yield f"a file cannot be read: {error}"
        return
    broken = list(violations(record))
    yield from broken
    if costs is None or broken or not isinstance(scenario, Scenario):
        return
    expected = {
        paths.clients: entry.clients is not None,
        paths.final_model: not entry.faulted and scenario.keep_models != "none",
        paths.client_models: not entry.faulted and scenario.keep_models == "clients",
    }
    missing = [path for path, is_expected in expected.items() if is_expected and not path.is_file()]
    yield from (f"{path.name} is missing" for path in missing if _is_trained(record))
    if record.emulation is None:
        yield from differences(record, scenario, label, costs)
    yield from _final_model(record, costs, paths.final_model)


def record_of(paths: SeedPaths, scenario: Scenario | AppScenario, label: str, entry: SeedResult) -> Record:
    """The files of one run, as the laws check them."""
    if isinstance(scenario, Scenario) and (method := scenario.method(label)).allowed:
        scenario = scenario_for(scenario, recipe_of(scenario, method))
    return Record(
        events=list(read_events(paths.events)),
        rounds=read_parquet(paths.rounds, OWN).to_pydict(),
        summary=entry,
        fleet=assign(scenario.fleet, scenario.data.clients, entry.seed),
        emulation=read_emulation(paths.emulation),
        server=scenario.training.server if isinstance(scenario, Scenario) else None,
    )


def _is_trained(record: Record) -> bool:
    # A part may have failed before any training; then the log has the first model's digest.
    return any("model" in event.facts for event in record.of("run")) or any(record.by_kind.get(k) for k in _TRAINED)


def differences(record: Record, scenario: Scenario, label: str, costs: StepCosts) -> Iterator[str]:
    """The differences between a run and the same run simulated again, as sentences; of the rows only the first one.

    What happens at and after a fault of a part is not compared, because the fault may not happen again.
    """
    with TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder))
        again = OneRun(scenario, scenario.method(label), world_of(scenario, record.summary.seed), costs, paths)
        try:
            if _is_trained(record):
                known = recording_of(record.events)
                entry = again.replayed(RecordedLearner(known, label, lambda name: NotTrained(known.untrained or name)))
                if record.summary.metric.samples is not None and scenario.evaluation.split == "test":
                    tested = {"samples": sum(scenario.data.describe().test)}  # that of held-out ones needs the data
                    entry = entry.model_copy(update={"metric": entry.metric.model_copy(update=tested)})
            else:
                entry = again.timed()
        except UserError as error:
            yield f"the run cannot be executed again: {error}"
            return
        derived = paths.of(label, record.summary.seed)
        for logged, event in zip_longest(record.events, read_events(derived.events)):
            if logged is None or event is None:
                what = "is missing" if logged is None else "does not follow from the scenario"
                yield f"{at(logged or event)}: {what}"
                return
            if logged.kind == "fault":
                return
            if logged != event and (name := _differing(logged, event)) is not None:
                found, expected = getattr(logged, name), getattr(event, name)
                yield f"{at(logged)}: {name} is {found}, but {expected} follows from the scenario"
                return
        again_rounds = read_parquet(derived.rounds, OWN).to_pydict()
        for name in record.rounds.keys() & again_rounds.keys():
            if not _same(record.rounds[name], again_rounds[name]):
                yield f"rounds.parquet: the column {name} does not follow from the scenario"
    yield from _of_summary(record.summary.written(), entry.written())


def _of_summary(recorded: dict[str, Any], derived: dict[str, Any]) -> Iterator[str]:
    for name, value in derived.items():
        found, expected = recorded.get(name, value), value  # a run by an earlier build has fewer figures
        if isinstance(value, dict) and isinstance(found, dict):
            found = {key: each for key, each in found.items() if key in value}  # the others need the data
            expected = {key: each for key, each in value.items() if key in found}
        if not _same(found, expected):
            yield f"{name}: summary.json has {found}, but {expected} follows from the scenario"


def _final_model(record: Record, costs: StepCosts, file: Path) -> Iterator[str]:
    digests = recording_of(record.events).digests
    if not digests or not file.is_file():
        return
    try:
        model = read_model(file, costs.adapted_model())
    except UserError as error:
        yield f"{file.name} cannot be read: {error.message}"
        return
    if digest_of_model(model) != digests[max(digests)].model:
        yield f"{file.name} is not the model from the last aggregation"


def _differing(logged: Event, derived: Event) -> str | None:
    """The first column in which two rows differ beyond rounding."""
    if logged.detail != derived.detail and not (derived.facts and _same(logged.facts, derived.facts)):
        return "detail"
    same = partial(_same, clock=derived.time)
    return next((n for n in Event._fields[:-1] if not same(getattr(logged, n), getattr(derived, n))), None)


def _same(a: Any, b: Any, *, clock: float = 0.0) -> bool:
    """Whether two values are equal up to rounding: another processor may round a logarithm differently."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or close(a, b, clock=clock) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key], clock=clock) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, clock=clock) for x, y in zip(a, b, strict=True))
    return bool(a == b)

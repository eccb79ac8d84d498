"""``edgefl plan --grid``: models, batches or any other values by methods in one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgefl.cli.printing import quiet, say, say_json, show
from edgefl.planning.observation import MethodPlan
from edgefl.planning.planning import PlannedSetting, plan_settings
from edgefl.record.figures import QUANTITIES
from edgefl.report.quantities import limit
from edgefl.report.rows import flat_values, option_words, short_paths
from edgefl.report.table import MISSING, Column, Table, figures, words
from edgefl.sweep.jobs import parse_grid, settings_of
from edgefl.wording import grouped


def show_grid(scenario: str, changes: Sequence[str], grid: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Plan the scenario with each setting of the grid, and print one table, or JSON with the plan of each setting."""
    settings, found = settings_of(parse_grid(grid)), list[PlannedSetting]()
    with quiet(as_json):
        for each in plan_settings(scenario, changes, settings, **options):
            found.append(each)
            left = len(settings) - len(found)
            say(f"{named(each)}: {'planned' if each.plan else 'refused'}; {left} left", err=True)
    if as_json:
        say_json({"settings": [asdict(each) for each in found]})
    else:
        show(grid_table(found))


def named(each: PlannedSetting) -> str:
    """The values of a setting."""
    return ", ".join(f"{path}={_words(path, value)}" for path, value in each.setting.items())


def _words(path: str, value: Any) -> str:
    """A value; of a mapping also the names of its keys, but for those that say what it is.

    >>> _words("model", {"name": "cnn", "width": 2}), _words("network.topology.latency", 0.005)
    ('cnn, width 2', '5 ms')
    """
    if not isinstance(value, Mapping):
        return option_words(path, value)
    inner = [(key, option_words(f"{path}.{key}", each)) for key, each in flat_values(value).items()]
    return ", ".join(words if key in ("name", "kind", "method") else f"{key} {words}" for key, words in inner)


def grid_table(found: Sequence[PlannedSetting]) -> Table:
    """A row for each setting and method that can be planned; below, why others cannot."""
    rows = [(each.setting, of) for each in found for of in (each.plan.methods if each.plan is not None else ())]
    methods = [each for _, each in rows]
    kinds = dict.fromkeys((of.kind, of.limit) for each in methods for of in each.budgets)
    paths = short_paths(list(found[0].setting))
    columns = [words(name, [_words(path, setting[path]) for setting, _ in rows]) for path, name in paths.items()]
    columns += [
        words("method", [each.label for each in methods]),
        *(Column(f"rounds in {limit(amount, kind)}{QUANTITIES[kind].each}",
                 [_reach(each, kind, amount) for each in methods]) for kind, amount in kinds),
        figures("time a round", [each.seconds for each in methods], "seconds"),
        figures("traffic a round", [each.bytes_down + each.bytes_up for each in methods], "bytes"),
        figures("energy a round", [each.joules.nominal for each in methods], "joules"),
        figures("memory", [max(of.peak_memory_bytes for of in each.devices) for each in methods], "bytes"),
        words("drop out", [_drop_out(each) for each in methods]),
    ]  # fmt: skip
    return Table(columns, list(_notes(found)))


def _reach(each: MethodPlan, kind: str, amount: float) -> str:
    budget = next((of for of in each.budgets if (of.kind, of.limit) == (kind, amount)), None)
    return MISSING if budget is None else f"{'≥ ' if budget.lasts else '≈ ' if budget.foreseen else ''}{budget.rounds}"


def _drop_out(each: MethodPlan) -> str:
    return ", ".join(f"{of.refused}/{of.clients} {of.device}" for of in each.devices if of.refused) or "none"


def _notes(found: Sequence[PlannedSetting]) -> Iterator[str]:
    plans = [each.plan for each in found if each.plan is not None]
    reasons: list[tuple[str, str]] = []
    for each in found:
        vain = {of.label: of.in_vain for of in (each.plan.methods if each.plan else ()) if of.in_vain is not None}
        reasons += [(why, f"{named(each)}{label and f' {label}'}") for label, why in {**each.refused, **vain}.items()]
    yield from (f"{'; '.join(of)}: {why.rstrip('.')}." for why, of in grouped(reasons).items())
    if any(method.budgets for each in plans for method in each.methods):
        yield "≥: the budget outlasts the scenario's rounds; ≈: extrapolated."
    yield (
        f"Nothing was trained: means over at most {max(each.rounds for each in plans)} simulated rounds, seed "
        f"{plans[0].seed}. Memory: of the client that needs most; drop out: clients with too little memory. Each row "
        "is that of edgefl plan with --set in place of --grid, which also shows devices; --json has all figures."
    )
    evidence = {of.device: of.evidence for each in plans for method in each.methods for of in method.devices}
    yield f"Seconds of a step: {'; '.join(f'{device} {text}' for device, text in evidence.items())}."

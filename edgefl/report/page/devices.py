"""Use of seconds, bytes and joules by kind of device and by client, and the metric of the worst tenth of clients."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.fleet.profile import Evidence
from edgefl.record.figures import at
from edgefl.report.choices import choices_figure, choices_of, reading
from edgefl.report.page.series import Series
from edgefl.report.pictures import elements
from edgefl.report.quantities import estimate, limit, quantity
from edgefl.report.rows import flat_values, named, option_words
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import mean_or_none
from edgefl.report.timeline.usage import ClientUse, by_device, use_of_clients

_BUSY = ("download", "compute", "upload")


def devices_data(series: Sequence[Series]) -> dict[str, Any]:
    """Energy per job, memory, and rows for each kind of device under each method with an event log."""
    logged = [one for one in series if one.timelines]
    kinds = [row for one in logged for row in _kinds(one)]
    batteries = any(row[-1] != "–" for row in kinds)
    return {
        "methods": [one.name for one in logged],
        "energy": _energy(logged),
        "memory": [_memory(one) for one in logged],
        "kinds": kinds if batteries else [row[:-1] for row in kinds],
        "batteries": batteries,
    }


def _energy(logged: Sequence[Series]) -> list[list[str]]:
    """Joules per job by kind of device, one column for each method, the mean over all kinds first."""
    found = [[use for timeline in one.timelines for use in use_of_clients(timeline)] for one in logged]
    kinds = [kind for kind in dict.fromkeys(kind for uses in found for kind in by_device(uses)) if kind != "–"]

    def joules_a_job(uses: Sequence[ClientUse]) -> str:
        jobs = sum(use.jobs for use in uses)
        return quantity(sum(sum(use.joules.values()) for use in uses) / jobs, "joules") if jobs else "–"

    rows = [["all devices", *(joules_a_job(uses) for uses in found)]]
    return rows + [[kind, *(joules_a_job(by_device(uses).get(kind, [])) for uses in found)] for kind in kinds]


def _memory(one: Series) -> list[str]:
    """The optimizer, the devices that have too little memory, and the bytes that the largest local step needs."""
    found = [(name, each) for timeline in one.timelines for name, each in timeline.memory.items()]
    excluded = dict.fromkeys(name for name, (_, has) in found if not has)
    optimizer = at(one.run.entry(one.label), "local.optimizer") or one.run.option("training.local.optimizer") or {}
    kind = optimizer.get("python") or optimizer.get("kind") or "–"
    needs = quantity(max((needs for _, (needs, _) in found), default=0.0), "bytes")
    return [one.name, Path(str(kind)).name, ", ".join(excluded) or "none", needs]


def _kinds(one: Series) -> list[list[str]]:
    uses: dict[str, list[ClientUse]] = {}
    for timeline in one.timelines:
        for kind, found in by_device(use_of_clients(timeline)).items():
            uses.setdefault(kind, []).extend(found)
    batteries = {_named(group): at(group, "profile.battery.capacity") for group in one.run.fleet}
    return [[one.name, kind, *_kind(found, len(one.timelines), batteries.get(kind))] for kind, found in uses.items()]


def _kind(uses: Sequence[ClientUse], seeds: int, capacity: float | None) -> list[str]:
    jobs = max(sum(use.jobs for use in uses), 1)
    joules = [sum(use.joules.values()) for use in uses]
    return [
        f"{len(uses) / seeds:.3g}",
        f"{jobs / len(uses):.1f}",
        quantity(sum(use.seconds.get(phase, 0.0) for use in uses for phase in _BUSY) / jobs, "seconds"),
        quantity(sum(use.bytes_down for use in uses) / jobs, "bytes"),
        quantity(sum(use.bytes_up for use in uses) / jobs, "bytes"),
        quantity(sum(joules) / jobs, "joules"),
        f"{100 * max(joules) / capacity:.2g} %" if capacity else "–",
    ]


def fairness_data(series: Sequence[Series]) -> list[list[str]]:
    """The mean over clients next to the worst tenth; empty if no client has its own part of the test set."""
    rows = []
    for one in series:
        for part, words in (("clients", "final model"), ("personalisation", "after personalisation by each client")):
            places = [f"{part}.mean", f"{part}.worst_tenth"]
            found = [mean_or_none([at(result, place) for result in one.results]) for place in places]
            if None not in found:
                rows.append([one.name, words, *(estimate(each, one.run.metric.dimension) for each in found if each)])
    return rows


def blocks_data(series: Sequence[Series]) -> dict[str, Any]:
    """How many clients were sent how many of the model's last blocks, by quarters of the run; pictures."""
    chosen = {one.name: found for one in series if (found := [each.alphas for each in one.timelines if each.alphas])}
    given = [round for found in chosen.values() for alphas in found for round in alphas.values()]
    counts = sorted({alpha for round in given for alpha in round.values()})
    rows = []
    for name, found in chosen.items():
        rounds = sorted({round for alphas in found for round in alphas})
        for part in np.array_split(rounds, min(4, len(rounds))):
            sent = Counter(alpha for alphas in found for round in part for alpha in alphas.get(int(round), {}).values())
            mean = [f"{sent[alpha] / len(part) / len(found):.1f}" for alpha in counts]
            rows.append([name, f"{part[0]}–{part[-1]}", *mean])
    pictures = []
    for number, one in enumerate(series):
        if choices := choices_of(one.run, one.label):
            drawn = elements(f"choices{number}", "blocks of each client over rounds", partial(choices_figure, choices))
            pictures.append((f"{one.name}, seed {one.results[0].seed}: {reading(choices)}", drawn))
    return {"counts": counts, "rows": rows, "pictures": pictures} if rows else {}


def fleet_words(run: RunResult) -> str:
    """The devices in one line, such as ``20 % raspberry-pi-4, 80 % jetson-nano``."""
    return ", ".join(f"{_share(group)} {_named(group)}" for group in run.fleet)


def _named(group: Mapping[str, Any]) -> str:
    return str(at(group, "profile.name") or group.get("profile"))


def fleet_data(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """The devices of each group of each run's fleet, and its links; runs without both are left out."""
    found = []
    for name, run in named(runs).items():
        links = {"topology": run.option("network.topology"), **(run.option("network.links") or {})}
        words = [(link, _words(spec)) for link, spec in links.items() if spec]
        if run.fleet or words:
            found.append({"name": name, "groups": [_group(group) for group in run.fleet], "links": words})
    return found


def _group(group: Mapping[str, Any]) -> list[str]:
    rate, memory, busy, idle = (
        _nominal(at(group, f"profile.{path}"))
        for path in ("compute.fp32_achievable", "memory.training", "power.compute", "power.idle")
    )
    found = at(group, "profile.provenance.evidence.compute") or {}  # such as fitted, ±10 %
    evidence = Evidence(kind=found.get("kind", "estimated"), source="the profile", error=_nominal(found.get("error")))
    return [
        _named(group),
        at(group, "profile.description") or "",
        _share(group),
        str(group.get("link", "")),
        "–" if rate is None else f"{quantity(rate, 'flops')}/s",
        str(evidence),
        "–" if memory is None else quantity(memory, "bytes"),
        "–" if busy is None else f"{busy:.3g} W",
        "–" if idle is None else f"{idle:.3g} W",
    ]


def _share(group: Mapping[str, Any]) -> str:
    count, share = group.get("count") or len(group.get("clients") or ()) or None, group.get("share")
    return str(count) if count is not None else limit(share, "fraction") if isinstance(share, float) else "–"


def _nominal(figure: Any) -> float | None:
    value = figure.get("nominal") if isinstance(figure, dict) else figure
    return float(value) if isinstance(value, int | float) else None


def _words(spec: Any) -> str:
    """The options of a link or of the topology on one line, with units."""
    options = {path: value for path, value in flat_values(spec).items() if value not in (None, False)}
    return ", ".join(f"{path.replace('.', ' ')} {option_words(f'network.{path}', options[path])}" for path in options)

"""What the table of a run does not show: devices that ran empty, clients that never came, rounds without a gain."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from edgefl.record.figures import Floats, at
from edgefl.record.metric import Metric
from edgefl.record.summary import Absent
from edgefl.report.curves import curves_of
from edgefl.report.quantities import quantity
from edgefl.report.run_result import RunResult
from edgefl.wording import counted, span

GAIN = 0.005
"""What counts as a gain: half a point of a share, half a percent of another metric."""
FEWEST_EVALUATIONS = 5
"""Nothing is said about a shorter curve."""
LEAST_SAVED = 0.25
"""The least part of the traffic for which rounds without a gain are named."""


def notices(run: RunResult) -> list[str]:
    """At most one line for each, of the methods that are compared."""
    lines = [
        run.unfinished[1] if run.unfinished else "",
        *_privacy(run),
        _batteries(run),
        _absent(run),
        _no_gain(run) if run.trained else "",
    ]
    return [f"{line}." for line in lines if line]


def _privacy(run: RunResult) -> list[str]:
    texts = []
    for label in run.compared:
        each, (seed, *_) = run.results[label], run.moments[label]
        secure, dp = (getattr(each[0], name, None) for name in ("secure_aggregation", "privacy"))
        texts += [f"{label}: {text}" for text in privacy_words(secure, dp, at(seed, "epsilon"))]
    return texts


def privacy_words(
    secure: Mapping[str, Any] | None, dp: Mapping[str, Any] | None, epsilon: float | None
) -> Iterator[str]:
    """What secure aggregation took in a run, and its privacy loss, from an entry of ``summary.json``."""
    if secure is not None and (rounds := secure["rounds"]):
        more = sum(each["seconds"] for each in secure["stages"] if each["stage"] != "collect_masked_vectors")
        failed = f"; {secure['failed']} of {counted(rounds, 'round')} failed" * (secure["failed"] > 0)
        trips = f"{secure['round_trips'] / rounds:.3g} round trips a round"
        yield f"{secure['kind']} has {trips}, {quantity(more / rounds, 'seconds')} besides that of training{failed}"
    if dp is not None:
        loss = "unbounded" if epsilon is None else f"{epsilon:.3g}"
        sampled = "Poisson sampling" if dp["sampling"] == "poisson" else "a fixed size, not Poisson sampling"
        yield f"ε is {loss} at δ {dp['delta']:g}, to {dp['adjacency']} ({sampled}; {dp['accountant']})"


def _batteries(run: RunResult) -> str:
    """The devices that ran empty; if none did, the battery with the least part left."""
    several, seeds = len(run.compared) > 1, len(run.seeds) > 1
    uses = [
        (device, use, f"client {use.client}{f' of {label}' * several}{f', seed {each.seed}' * seeds}")
        for label in run.compared
        for each in run.results[label]
        for device, use in (each.batteries or {}).items()
    ]
    texts = []
    for device in dict.fromkeys(device for device, use, _ in uses if use.empty):
        own = [(use, who) for of, use, who in uses if of == device]
        first, who = min(own, key=lambda each: math.inf if each[0].seconds is None else each[0].seconds)
        counts = f"{span([use.empty for use, _ in own])} of {first.clients} {device}"
        texts.append(f"{counts} ran empty, first after {quantity(first.seconds or 0.0, 'seconds')} ({who})")
    if texts or not uses:
        return "; ".join(texts)
    device, use, who = min(uses, key=lambda each: each[1].left)
    return f"Lowest battery left: {100 * use.left:.0f} % ({device}, {who})"


def _absent(run: RunResult) -> str:
    found = [each.absent or Absent(away=0, unselected=0) for label in run.compared for each in run.results[label]]
    away, unselected = [each.away for each in found], [each.unselected for each in found]
    reasons = {"never available when clients were selected": away, "never selected": unselected}
    known = {why: span(counts) for why, counts in reasons.items() if any(counts)}
    clients = run.option("data.clients")
    if not known or not clients:
        return ""
    why = ", ".join(f"{count} {why}" if len(known) > 1 else why for why, count in known.items())
    never = span([each.away + each.unselected for each in found])
    return f"{never} of {counted(clients, 'client')} never took part ({why})"


def _no_gain(run: RunResult) -> str:
    """For each method whose later evaluations gained nothing, the round after which, and what stopping there saves."""
    texts: list[str] = []
    for label in run.compared:
        moments, curves = run.moments[label], curves_of(run, label)
        if len(curves) < len(moments):  # a seed has no evaluation
            continue
        count = min(int((each.spent["rounds"] <= of.rounds).sum()) for each, of in zip(curves, moments, strict=True))
        if count < FEWEST_EVALUATIONS:
            continue
        last = last_gain(np.mean([curve.values[:count] for curve in curves], axis=0), run.metric)
        kind, name = ("bytes", "traffic") if curves[0].spent["bytes"][count - 1] else ("seconds", "time")
        spent = np.sum([curve.spent[kind][:count] for curve in curves], axis=0)
        saved = 1 - spent[last] / spent[-1]
        if saved >= LEAST_SAVED:
            round = int(curves[0].spent["rounds"][last])
            tail = f"{100 * saved:.0f} %" if texts else f"stopping there saves {100 * saved:.0f} % of the {name}"
            texts.append(f"{label}: no gain after round {round}{', ' if texts else ': '}{tail}")
    return "; ".join(texts)


def last_gain(values: Floats, metric: Metric) -> int:
    """The first evaluation that no later one exceeds by a gain.

    >>> from edgefl.record.metric import ACCURACY
    >>> last_gain(np.array([0.1, 0.8, 0.85, 0.853, 0.84, 0.854]), ACCURACY)
    2
    """
    sign = 1.0 if metric.better == "higher" else -1.0
    best_later = np.maximum.accumulate((sign * values)[::-1])[::-1]  # at or after each evaluation
    gain = GAIN if metric.share else GAIN * np.abs(values)
    return int(np.argmax(best_later - sign * values <= gain))

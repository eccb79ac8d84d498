"""``edgefl plan --published``: what the rounds that a paper reports cost on devices."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgefl.cli.printing import show
from edgefl.planning.pricing import Pays, Prices
from edgefl.report.table import MISSING, Column, Table, figures, words
from edgefl.wording import listed


def show_prices(found: Prices) -> None:
    """Print the prices as a table."""
    prices = found.prices
    rounds = [each.published for each in prices]
    columns = [
        words("device", [each.fleet for each in prices]),
        words("goal", [each.goal for each in rounds]),
        words("method", [each.method for each in rounds]),
        figures("accuracy", [each.accuracy for each in rounds], "fraction"),
        Column("rounds", [f"{each.bound} {each.rounds}".strip() for each in rounds]),
        figures("a round", [each.seconds_a_round for each in prices], "seconds"),
        figures("time", [each.seconds.nominal for each in prices], "seconds"),
        Column("ratio", [MISSING if each.ratio is None else f"{each.ratio:.2f}" for each in prices]),
        Column("faster, Mbit/s", [_pays(each.pays) for each in prices]),
        figures("bytes", [each.bytes for each in prices], "bytes"),
        figures("energy", [each.joules.nominal for each in prices], "joules"),
        figures("work", [each.flops for each in prices], "flops"),
    ]
    needless = {"accuracy": all(each.accuracy is None for each in rounds), "device": len(found.planned) == 1}
    show(Table([each for each in columns if not needless.get(each.head)], list(_notes(found))))


def _pays(pays: Mapping[Any, Pays] | None) -> str:
    """When a method pays, in brackets with devices at the slow and the fast end of their profiles.

    >>> _pays({"low": Pays("below", 74e6), "nominal": Pays("below", 37e6), "high": Pays("no rate")})
    'below 37 (never to 74)'
    >>> _pays(dict.fromkeys(("low", "nominal", "high"), Pays("every rate")))
    'always'
    """
    if pays is None:
        return MISSING
    low, nominal, high = (_words(pays[bound]) for bound in ("low", "nominal", "high"))
    if low == nominal == high:
        return nominal
    same = f"{pays['nominal'].at} "
    return f"{nominal} ({high.removeprefix(same)} to {low.removeprefix(same)})"


def _words(pays: Pays) -> str:
    if pays.rate is None:
        return "always" if pays.at == "every rate" else "never"
    return f"{pays.at} {pays.rate / 1e6:.2g}" if pays.rate < 1e8 else f"{pays.at} {pays.rate / 1e6:.0f}"


def _notes(found: Prices) -> Iterator[str]:
    made, sources = found.planned[0], dict.fromkeys(each.published.source for each in found.prices)
    yield (
        f"Published rounds ({listed(list(sources))}) times the mean of {made.rounds} rounds, simulated with seed "
        f"{made.seed}; nothing was trained. Bytes, energy and work: of all clients."
    )
    if any(each.pays for each in found.prices):
        yield (
            f"Ratio: of the time to that of {found.baseline} with its published rounds. Faster: with links of these "
            f"rates (the median client's downlink, here {found.rate / 1e6:.4g} Mbit/s); in brackets: if all devices "
            "are as slow and as fast as their profiles allow. >: the paper states only a bound, which is taken as "
            "the number."
        )
    plans = [(method, device) for plan in found.planned for method in plan.methods for device in method.devices]
    evidence = {device.device: device.evidence for _, device in plans}
    yield f"Seconds of a step: {'; '.join(f'{device} {text}' for device, text in evidence.items())}."
    yield from (f"{method.label} on {device.device}: {device.why}." for method, device in plans if device.why)
    yield from (f"{each.label}: {each.in_vain}." for plan in found.planned for each in plan.methods if each.in_vain)

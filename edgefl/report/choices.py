"""What a block scheduler chose: α of each client over rounds, and GMBS's mean reward and bonus, from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgefl.record.figures import at
from edgefl.record.tables import read_events
from edgefl.report.figure_file import new_figure, plain
from edgefl.report.quantities import quantity
from edgefl.report.run_result import RunResult
from edgefl.report.table import Column, Table, figures, words
from edgefl.wording import grouped, listed, span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLIENTS = 20
"""Clients with a row in the table."""
MOST_CELLS = 3000
"""Choices in the picture; later rounds are left out."""


class Choice(NamedTuple):
    """The number of blocks that one client was sent in one round."""

    round: int  # from 1
    client: int
    alpha: int
    reward: float | None  # p_{k,α} of Eq. 23, and the bonus of Eq. 24; None if the scheduler has none
    bonus: float | None


def choices_of(run: RunResult, label: str) -> list[Choice]:
    """The choices of a method's first seed, in order; none without a log, or if one number of blocks was chosen."""
    result = run.results[label][0]
    log = run.of(label, result.seed).events
    if at(result, "blocks") is None or not log.is_file():
        return []
    found = []
    for event in read_events(log, ["decision"]):
        facts = event.facts if event.item == "blocks" else {}
        rewards, bonuses = facts.get("rewards", {}), facts.get("bonuses", {})
        for client, alpha in facts.get("alphas", {}).items():
            reward = float(rewards[client]) if client in rewards else None
            found.append(Choice(event.round, int(client), alpha, reward, bonuses.get(client)))
    return found if len({each.alpha for each in found}) > 1 else []


def reading(choices: Sequence[Choice]) -> str:
    """How often each α was chosen, and the reward and the bonus that decided it.

    It is a rotation where no client's numbers differ by more than a third of their mean, or by more than one.

    >>> reading([Choice(round, 0, alpha, None, None) for round, alpha in ((2, 1), (4, 2), (6, 2))])
    'A rotation: each client had each α (1 and 2) 1–2 times.'
    >>> reading([Choice(round, 0, 1 + (round == 4), None, None) for round in range(4)] + [Choice(4, 0, 2, None, None)])
    'α = 1 in 80 % and α = 2 in 20 % of all choices.'
    """
    alphas = sorted({each.alpha for each in choices})
    counts = [[Counter(each.alpha for each in own)[alpha] for alpha in alphas] for own in _by_client(choices).values()]
    if all(max(times) - min(times) <= max(1, sum(times) // (3 * len(times))) for times in counts):
        often = span([each for times in counts for each in times])
        text = f"A rotation: each client had each α ({listed([str(alpha) for alpha in alphas])}) {often} times."
    else:
        shares = [f"{sum(times) / len(choices):.0%}".replace("%", " %") for times in zip(*counts, strict=True)]
        text = f"{listed([f'α = {a} in {share}' for a, share in zip(alphas, shares, strict=True)])} of all choices."
    known = [each for each in choices if each.bonus is not None]
    if known:
        first, last = (quantity(known[place].bonus or 0.0, "number") for place in (0, -1))
        most = quantity(max(abs(each.reward or 0.0) for each in known), "number")
        text += f" The bonus went from {first} to {last}; the mean reward was at most {most}."
    return text


def choice_table(run: RunResult, label: str, name: str) -> Table | None:
    """A row for each client, with its α in each round with a choice; None if there are no choices."""
    choices = choices_of(run, label)
    if not choices:
        return None
    alphas, every = sorted({each.alpha for each in choices}), _by_client(choices)
    shown = dict(list(every.items())[:MOST_CLIENTS])
    times = [Counter(each.alpha for each in own) for own in shown.values()]
    columns = [
        words("client", [str(client) for client in shown]),
        Column(f"times α = {', '.join(map(str, alphas))}", ["/".join(str(of[a]) for a in alphas) for of in times]),
    ]
    if choices[0].bonus is not None:
        rewards = [float(np.mean([abs(each.reward or 0.0) for each in own])) for own in shown.values()]
        columns.append(figures("mean |reward|", rewards, "number"))
        columns.append(figures("last bonus", [own[-1].bonus for own in shown.values()], "number"))
    columns.append(words("α by round", [_in_tens([each.alpha for each in own]) for own in shown.values()]))
    rest = [f"{len(every) - MOST_CLIENTS} more clients are on the page."] * (len(every) > MOST_CLIENTS)
    seed, first, last = run.results[label][0].seed, choices[0].round, choices[-1].round
    title = f"{name}: blocks α chosen for each client, rounds {first} to {last}, seed {seed}"
    return Table(columns, [*rest, reading(choices)], [title])


def distance_table(run: RunResult, label: str, name: str) -> Table | None:
    """A row for each α: ‖x^t − x_k^t‖² of the server's model and the one that an aggregated job started from.

    The largest is β², by which the bound of Liu et al. 2023 grows by 2 β² L² (Lemma 1, Theorem 1). None for methods
    whose clients keep no blocks, and without a log.
    """
    result = run.results[label][0]
    log = run.of(label, result.seed).events
    if not at(result, "blocks.front_blocks") or not log.is_file():
        return None
    alphas, found = dict[tuple[int, int], int](), list[tuple[int, float]]()
    for event in read_events(log, ["compute_start", "feedback"]):
        if event.kind == "compute_start":
            alphas[event.job] = event.alpha
        else:
            found.append((alphas[event.job], float(event.facts["drift"])))
    if not found:  # nothing was trained
        return None
    rows = grouped(sorted(found))
    columns = [
        words("α", [str(alpha) for alpha in rows]),
        figures("jobs", [len(own) for own in rows.values()], "count"),
        figures("mean", [float(np.mean(own)) for own in rows.values()], "number"),
        figures("largest (β²)", [max(own) for own in rows.values()], "number"),
    ]
    title = f"{name}: squared distance ‖x − x_k‖² of a client's start from the server's model by α, seed {result.seed}"
    return Table(columns, (), [title])


def _by_client(choices: Sequence[Choice]) -> dict[int, list[Choice]]:
    return grouped(sorted(((each.client, each) for each in choices), key=lambda pair: pair[0]))


def _in_tens(alphas: Sequence[int]) -> str:
    """Digits, a space after each tenth; larger numbers with a space between all.

    >>> _in_tens([1, 2, 3] * 4), _in_tens([9, 10])
    ('1231231231 23', '9 10')
    """
    together, size = ("", 10) if max(alphas) < 10 else (" ", len(alphas))
    parts = [alphas[start : start + size] for start in range(0, len(alphas), size)]
    return " ".join(together.join(map(str, part)) for part in parts)


def choices_figure(choices: Sequence[Choice], size: tuple[float, float]) -> Figure:
    """Each client's α by round as colours; below, if the scheduler has them, the means of bonus and |reward|."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from matplotlib.patches import Patch, PathPatch
    from matplotlib.path import Path

    choices = [each for each in choices if each.round <= choices[min(len(choices), MOST_CELLS) - 1].round]
    rounds, clients = (sorted({getattr(each, name) for each in choices}) for name in ("round", "client"))
    weighed, alphas = choices[0].bonus is not None, sorted({each.alpha for each in choices})
    figure = new_figure(figsize=size, layout="constrained")
    axes = figure.subplots(1 + weighed, 1, sharex=True, squeeze=False, height_ratios=(2, 1)[: 1 + weighed])[:, 0]
    width = min(np.diff(rounds), default=1)
    square = np.array([(0, 0), (width, 0), (width, 1), (0, 1), (0, 0)])
    colours = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.15, 0.95, len(alphas)))]
    for alpha, colour in zip(alphas, colours, strict=True):
        places = [(each.round - width / 2, clients.index(each.client) - 0.5) for each in choices if each.alpha == alpha]
        cells = Path.make_compound_path(*(Path(square + np.array(place), closed=True) for place in places))
        axes[0].add_patch(PathPatch(cells, facecolor=colour, edgecolor="none"))
    axes[0].set(xlim=(rounds[0] - width, rounds[-1] + width), ylim=(len(clients) - 0.5, -0.5), ylabel="client")
    step = max(1, -(-len(clients) // 12))
    axes[0].set_yticks(range(0, len(clients), step), [str(client) for client in clients[::step]])
    handles = [Patch(color=colour, label=f"α = {alpha}") for alpha, colour in zip(alphas, colours, strict=True)]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(alphas)), frameon=False)
    if weighed:
        own = grouped((each.round, each) for each in choices)
        for name, line in (("bonus", "-"), ("reward", "--")):
            means = [np.mean([abs(getattr(each, name)) for each in found]) or np.nan for found in own.values()]
            axes[1].plot(list(own), means, line, color="#0072B2" if name == "bonus" else "#D55E00", label=name)
        axes[1].set(yscale="log", ylabel="mean size")
        axes[1].legend(frameon=False)
        plain(axes[1])
    axes[-1].set_xlabel("round")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure

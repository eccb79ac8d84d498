"""A round as a mixed-integer linear program over the order of its events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefl.scheduling.optimum.choices import Choices, Numbers


class Program:
    """The variables and constraints of a round with at most ``places`` clients.

    Downloads end at E_1 <= … <= E_P and uploads begin at R_1 <= … <= R_P. The binary a[j, p] says that choice j's
    download ends at E_p, and b[j, q] that its upload begins at R_q. The part f[j, p] of its download flows between
    E_(p-1) and E_p, and the part g[j, q] of its upload between R_q and R_(q+1), or the end T. e[j] is the end of its
    download.

    Args:
        choices: the possible participations, with the same start and no link that is down.
        utility: the least sum of utilities.
        places: P.
        deadline: the highest T.
    """

    def __init__(self, choices: Choices, utility: float, places: int, deadline: float) -> None:
        self._choices = choices
        self._number = count = len(choices.client)
        self._places = places
        shapes = {
            "y": (count,), "a": (count, places), "b": (count, places), "f": (count, places), "g": (count, places),
            "e": (count,), "E": (places,), "R": (places,), "T": (1,),
        }  # fmt: skip
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
        self._width = int(ends[-1])
        self._at: dict[str, Any] = {
            name: np.arange(end - math.prod(shape), end).reshape(shape)
            for (name, shape), end in zip(shapes.items(), ends.tolist(), strict=True)
        }
        self._rows: list[Numbers] = []
        self._lowest: list[float] = []
        self._highest: list[float] = []
        self._deadline = deadline
        self._down, self._up = choices.down_seconds, choices.up_seconds
        longest = [float(np.sort(each)[-places:].sum()) for each in (self._down, self._up)]
        # No optimal round is longer: one transfer after another, with the longest work between.
        self._horizon = longest[0] + float(choices.between.max()) + longest[1]
        self._cohort(utility)
        self._transfers("f", "a", choices.down_bits, choices.down_rate, choices.server_down)
        self._transfers("g", "b", choices.up_bits, choices.up_rate, choices.server_up)
        self._order()

    def solve(self, least: Literal["seconds", "joules"]) -> NDArray[np.int64] | None:
        """The indices of the best cohort; None if there is none."""
        cost = np.zeros(self._width)
        if least == "joules":
            scale = float(self._choices.joules.max()) or 1.0
            cost[self._at["y"]] = self._choices.joules / scale
        else:
            cost[self._at["T"]] = 1.0
        found = self._solved(cost, {})
        return None if found is None else np.flatnonzero(found[self._at["y"]] > 0.5)

    def makespan(self, taken: NDArray[np.int64]) -> float:
        """The least makespan of a cohort, from the beginning of the round."""
        cost = np.zeros(self._width)
        cost[self._at["T"]] = 1.0
        fixed = {"y": np.isin(np.arange(self._number), taken).astype(float)}
        found = self._solved(cost, fixed)
        if found is not None:
            # With the order fixed this is a linear program, which is solved more exactly.
            fixed |= {name: np.round(found[self._at[name]]) for name in "ab"}
            found = self._solved(cost, fixed)
        if found is None:
            raise RuntimeError(f"the program of a cohort of {len(taken)} clients was not solved")
        return float(self._choices.start[0] + found[self._at["T"][0]])

    def _row(self, entries: Sequence[tuple[Any, Any]], low: float, high: float) -> None:
        row = np.zeros(self._width)
        for where, factor in entries:
            row[where] += factor
        self._rows.append(row)
        self._lowest.append(low)
        self._highest.append(high)

    def _cohort(self, utility: float) -> None:
        y, a, b = (self._at[name] for name in "yab")
        self._row([(y, self._choices.utility / utility)], 1.0 - 1e-12, math.inf)
        for client in np.unique(self._choices.client):
            self._row([(y[self._choices.client == client], 1.0)], -math.inf, 1.0)
        for place in range(self._places):
            for order in (a, b):
                self._row([(order[:, place], 1.0)], -math.inf, 1.0)
                if place:
                    # Places are taken from the first on, so that equal rounds are not tried again.
                    self._row([(order[:, place - 1], 1.0), (order[:, place], -1.0)], 0.0, math.inf)
        for each in range(self._number):
            for order in (a, b):
                self._row([(order[each], 1.0), (y[each], -1.0)], 0.0, 0.0)

    def _transfers(self, part: str, order: str, bits: Numbers, rate: Numbers, server: float) -> None:
        parts, places, down = self._at[part], self._at[order], part == "f"
        limit = np.minimum(rate, server)
        for place in range(self._places):
            span = self._span(place, down=down)
            for each in range(self._number):
                if bits[each] > 0:
                    own = float(bits[each] / limit[each])
                    self._row([(parts[each, place], own), *[(at, -sign) for at, sign in span]], -math.inf, 0.0)
                held = places[each, place:] if down else places[each, : place + 1]
                self._row([(parts[each, place], 1.0), (held, -1.0)], -math.inf, 0.0)
            if math.isfinite(server):
                shared = [(parts[:, place], bits / server), *[(at, -sign) for at, sign in span]]
                self._row(shared, -math.inf, 0.0)
        for each in range(self._number):
            self._row([(parts[each], 1.0), (self._at["y"][each], -1.0)], 0.0, 0.0)

    def _span(self, place: int, *, down: bool) -> list[tuple[Any, float]]:
        """The length of an interval between events: its end minus its beginning."""
        ends, begins, last = self._at["E"], self._at["R"], self._at["T"][0]
        if down:
            return [(ends[place], 1.0)] + ([(ends[place - 1], -1.0)] if place else [])
        return [(begins[place + 1] if place + 1 < self._places else last, 1.0), (begins[place], -1.0)]

    def _order(self) -> None:
        y, a, b, e, ends, begins = (self._at[name] for name in ("y", "a", "b", "e", "E", "R"))
        last, between, large = self._at["T"][0], self._choices.between, self._horizon
        for place in range(self._places):
            for down in (True, False):
                self._row(list(self._span(place, down=down)), 0.0, math.inf)
        for each in range(self._number):
            lag, own = float(between[each]), float(self._up[each])
            self._row([(e[each], 1.0), (y[each], -float(self._down[each]))], 0.0, math.inf)
            self._row([(last, 1.0), (e[each], -1.0), (y[each], -(lag + own))], 0.0, math.inf)
            for place in range(self._places):
                # These hold only for the event that is the choice's own; for others, ``large`` makes them empty.
                self._row([(e[each], 1.0), (ends[place], -1.0), (a[each, place], -large)], -large, math.inf)
                self._row([(begins[place], 1.0), (e[each], -1.0), (b[each, place], -(large + lag))], -large, math.inf)

    def _solved(self, cost: Numbers, fixed: dict[str, Numbers]) -> Numbers | None:
        from scipy.optimize import Bounds, LinearConstraint, milp

        low, high = np.zeros(self._width), np.ones(self._width)
        whole = np.zeros(self._width, np.int64)
        start = float(self._choices.start[0])
        for name in ("e", "E", "R", "T"):
            high[self._at[name]] = self._horizon
        high[self._at["T"]] = min(self._horizon, self._deadline - start)
        for name in "yab":
            whole[self._at[name]] = 1
        for name, values in fixed.items():
            low[self._at[name]] = high[self._at[name]] = values
            whole[self._at[name]] = 0
        found = milp(
            cost,
            integrality=whole,
            bounds=Bounds(low, high),
            constraints=LinearConstraint(np.array(self._rows), self._lowest, self._highest),
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None and found.status != 2:
            raise RuntimeError(f"the program of {self._number} choices was not solved: {found.message}")
        return None if found.x is None else np.asarray(found.x)

"""The shortest round of few clients, by mixed-integer linear programming: what bounds are compared with.

The rates of fluid transfers can be taken as constant between two events, the ends of downloads and the beginnings of
uploads. For a given order of these, the least makespan is a linear program; here the order and the cohort are binary
variables. The time grows quickly with the number of clients.
"""

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp


def best_round(costs, updates):
    """The least makespan of any cohort that returns as many updates, and its clients; None if no cohort does.

    All clients have the same ``start``.

    Downloads end at E_1 <= … <= E_P and uploads begin at R_1 <= … <= R_P. The binary a[j, p] says that client j's
    download ends at E_p, and b[j, q] that its upload begins at R_q. The part f[j, p] of its download flows between
    E_(p-1) and E_p, and the part g[j, q] of its upload between R_q and R_(q+1), or the end T. e[j] is the end of its
    download.
    """
    able = np.flatnonzero(np.isfinite(costs.alone))
    if len(able) < updates:
        return None
    program = _Program(costs.only(np.isfinite(costs.alone)), updates)
    found = program.solved({})
    taken = found[program.at["y"]] > 0.5
    # With the order fixed this is a linear program, which is solved more exactly.
    order = {name: np.round(found[program.at[name]]) for name in "ab"}
    found = program.solved({"y": taken.astype(float), **order})
    return float(costs.start[0] + found[program.at["T"][0]]), tuple(able[taken].tolist())


class _Program:
    def __init__(self, costs, places):
        self.places, self.count = places, len(costs.alone)
        count = self.count
        shapes = {
            "y": (count,), "a": (count, places), "b": (count, places), "f": (count, places), "g": (count, places),
            "e": (count,), "E": (places,), "R": (places,), "T": (1,),
        }  # fmt: skip
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
        self.width = int(ends[-1])
        self.at = {
            name: np.arange(end - math.prod(shape), end).reshape(shape)
            for (name, shape), end in zip(shapes.items(), ends.tolist(), strict=True)
        }
        self.rows, self.lowest, self.highest = [], [], []
        longest = [float(np.sort(each)[-places:].sum()) for each in (costs.down_seconds, costs.up_seconds)]
        # No optimal round is longer: one transfer after another, with the longest work between.
        self.horizon = longest[0] + float(costs.between.max()) + longest[1]
        self._cohort()
        self._transfers("f", "a", costs.down_bits, costs.down_rate, costs.server_down)
        self._transfers("g", "b", costs.up_bits, costs.up_rate, costs.server_up)
        self._order(costs)

    def solved(self, fixed):
        cost, low, high = np.zeros(self.width), np.zeros(self.width), np.ones(self.width)
        cost[self.at["T"]] = 1.0
        whole = np.zeros(self.width, np.int64)
        for name in ("e", "E", "R", "T"):
            high[self.at[name]] = self.horizon
        for name in "yab":
            whole[self.at[name]] = 1
        for name, values in fixed.items():
            low[self.at[name]] = high[self.at[name]] = values
            whole[self.at[name]] = 0
        # HiGHS in SciPy 1.17 does not solve some valid programs after its presolve.
        for presolve in (True, False):
            found = milp(
                cost,
                integrality=whole,
                bounds=Bounds(low, high),
                constraints=LinearConstraint(np.array(self.rows), self.lowest, self.highest),
                options={"mip_rel_gap": 0.0, "presolve": presolve},
            )
            if found.x is not None:
                return found.x
        raise RuntimeError(f"the program of {self.count} clients was not solved: {found.message}")

    def _row(self, entries, low, high):
        row = np.zeros(self.width)
        for where, factor in entries:
            row[where] += factor
        self.rows.append(row)
        self.lowest.append(low)
        self.highest.append(high)

    def _cohort(self):
        y, a, b = (self.at[name] for name in "yab")
        self._row([(y, 1.0)], self.places, self.places)
        for order in (a, b):
            for place in range(self.places):
                self._row([(order[:, place], 1.0)], 1.0, 1.0)
            for each in range(self.count):
                self._row([(order[each], 1.0), (y[each], -1.0)], 0.0, 0.0)

    def _transfers(self, part, order, bits, rate, server):
        parts, places, down = self.at[part], self.at[order], part == "f"
        limit = np.minimum(rate, server)
        for place in range(self.places):
            span = self._span(place, down)
            for each in range(self.count):
                if bits[each] > 0:
                    own = float(bits[each] / limit[each])
                    self._row([(parts[each, place], own), *[(at, -sign) for at, sign in span]], -math.inf, 0.0)
                held = places[each, place:] if down else places[each, : place + 1]
                self._row([(parts[each, place], 1.0), (held, -1.0)], -math.inf, 0.0)
            if math.isfinite(server):
                shared = [(parts[:, place], bits / server), *[(at, -sign) for at, sign in span]]
                self._row(shared, -math.inf, 0.0)
        for each in range(self.count):
            self._row([(parts[each], 1.0), (self.at["y"][each], -1.0)], 0.0, 0.0)

    def _span(self, place, down):
        """The length of an interval between events: its end minus its beginning."""
        ends, begins, last = self.at["E"], self.at["R"], self.at["T"][0]
        if down:
            return [(ends[place], 1.0)] + ([(ends[place - 1], -1.0)] if place else [])
        return [(begins[place + 1] if place + 1 < self.places else last, 1.0), (begins[place], -1.0)]

    def _order(self, costs):
        y, a, b, e, ends, begins = (self.at[name] for name in ("y", "a", "b", "e", "E", "R"))
        last, between, large = self.at["T"][0], costs.between, self.horizon
        for place in range(self.places):
            for down in (True, False):
                self._row(self._span(place, down), 0.0, math.inf)
        for each in range(self.count):
            lag, own = float(between[each]), float(costs.up_seconds[each])
            self._row([(e[each], 1.0), (y[each], -float(costs.down_seconds[each]))], 0.0, math.inf)
            self._row([(last, 1.0), (e[each], -1.0), (y[each], -(lag + own))], 0.0, math.inf)
            for place in range(self.places):
                # These hold only for the event that is the client's own; for others, ``large`` makes them empty.
                self._row([(e[each], 1.0), (ends[place], -1.0), (a[each, place], -large)], -large, math.inf)
                self._row([(begins[place], 1.0), (e[each], -1.0), (b[each, place], -(large + lag))], -large, math.inf)

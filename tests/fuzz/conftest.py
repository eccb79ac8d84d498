"""Valid scenarios, and ways to spoil them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

BASE: dict[str, Any] = {
    "name": "fuzzed",
    "seeds": [0],
    "data": {
        "name": "synthetic", "shape": [1, 8, 8], "classes": 4, "train": 160, "test_images": 40, "clients": 8,
        "partition": {"kind": "shards", "s": 2},
    },
    "model": {"name": "cnn", "width": 2},
    "training": {
        "rounds": 2, "cohort": 3, "selection": {"kind": "uniform"}, "local": {"epochs": 1, "batch": 16, "lr": 0.1},
    },
    "evaluation": {"every": 1},
    "protocol": {"kind": "synchronous"},
    "fleet": [
        {"profile": "raspberry-pi-4", "share": 0.5, "link": "5g"},
        {"profile": "phone-mid-range", "share": 0.5, "link": "5g"},
    ],
    "network": {
        "topology": {"kind": "star", "server": {"down": "100 Mbit/s", "up": "100 Mbit/s"}, "latency": "20 ms"},
        "links": {
            "5g": {
                "down": {"kind": "uniform", "low": "4 Mbit/s", "high": "28 Mbit/s"}, "up": "10 Mbit/s",
                "redraw": "2 rounds",
            }
        },
    },
    "methods": ["fedavg", {"method": "fedprox", "mu": 0.1, "as": "prox"}],
    "targets": [0.3],
    "budgets": {"seconds": "1 h", "bytes": None},
    "stop": "rounds",
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "blocks": {
        "methods": [{"method": "fedbr", "scheduler": {"kind": "gmbs"}}, {"method": "fedadc", "overlap": True}],
        "protocol": {"kind": "synchronous", "deadline": "2 s", "over_select": 1.4},
    },
    "asynchronous": {
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4, "staleness": {"kind": "polynomial"}},
        "methods": ["fedavg", "scaffold"],
    },
    "cells": {
        "protocol": {"kind": "hierarchical"},
        "network": {
            "topology": {
                "kind": "cells", "cells": 2, "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"},
                "backhaul": {"down": "50 Mbit/s", "up": "50 Mbit/s"}, "latency": "5 ms", "sharing": "rate_fair",
            },
            "transport": {"kind": "lv08"},
            "links": {
                "5g": {
                    "down": {"kind": "process", "like": "4g_walking", "outage_every": "60 s"},
                    "up": {"kind": "process", "quantiles": {10: "1 Mbit/s", 90: "9 Mbit/s"}},
                }
            },
        },
    },
    "outages": {
        "network": {
            "topology": {
                "kind": "star", "server": {"down": "100 Mbit/s", "up": "100 Mbit/s"}, "latency": "20 ms",
            },
            "transport": {
                "timeouts": {
                    "connection": "100 ms", "transfer": "9 s", "retries": 2, "first_wait": "50 ms",
                    "resume": "ranges", "chunk": "100 B",
                }
            },
            "links": {
                "5g": {
                    "down": {
                        "kind": "process", "quantiles": {0: "20 kbit/s", 100: "90 kbit/s"}, "step": "50 ms",
                        "outage_every": "500 ms", "outage_length": "200 ms",
                    },
                    "up": "30 kbit/s",
                }
            },
        },
        "protocol": {"kind": "synchronous", "deadline": {"kind": "adaptive", "first": "9 s"}},
    },
    "days": {
        "fleet": [
            {
                "profile": "phone-mid-range", "share": 1, "link": "5g", "dropout": 0.1,
                "availability": {"kind": "diurnal"},
            }
        ],
    },
    "deadline": {"training": {
        "rounds": 2, "cohort": 3, "selection": {"kind": "deadline", "deadline": "3 s"},
        "local": {"steps": 3, "batch": 8, "lr": 0.1},
    }},
}  # fmt: skip

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 50),
    st.floats(),
    st.floats(0, 2),
    st.text(max_size=8),
    st.sampled_from(
        [
            "40 mbit/s",
            "0 bit/s",
            "1 bit/s",
            "1e999 s",
            "1e300 s",
            "-3",
            "nan",
            "../..",
            "/etc/passwd",
            "5 kJ",
            "\x00",
            "²",
            "0",
            "5g",
            "fedavg",
            "uniform",
            "0 s",
            "1e-300 s",
            "~",
            "1 rounds",
            "0 rounds",
            "digits",
            "oort",
        ]
    ),
    st.lists(st.integers(-3, 3), max_size=3),
    st.lists(st.sampled_from(["fedavg", "fedbr", "moon", 3]), max_size=3),
    st.dictionaries(
        st.one_of(st.text(max_size=5), st.integers(), st.sampled_from(["kind", "method"])),
        st.integers(-3, 3),
        max_size=3,
    ),
)
"""What may stand anywhere by mistake."""


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside."""
    found = [path] if path else []
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            found += places(data[key], (*path, key))
    return found


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


@st.composite
def spoilt(draw: st.DrawFn, original: Any, changes: int = 3) -> Any:
    """A copy with one to three things replaced, scaled, removed, renamed, added, doubled or moved elsewhere."""
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, changes))):
        paths = places(data)
        if not paths:
            return data
        path = draw(st.sampled_from(paths))
        parent, key = at(data, path[:-1]), path[-1]
        what = draw(st.sampled_from(["replace", "replace", "scale", "remove", "rename", "add", "double", "move"]))
        if what == "scale" and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = parent[key] * draw(st.sampled_from([0, -1, 0.5, 2, 1e-9, 1e9, 10**20]))
        elif what == "remove":
            del parent[key]
        elif what == "rename" and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif what == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["surplus", "kind", "name", "file", 7]))] = draw(ODD)
        elif what == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif what == "move":
            parent[key] = copy.deepcopy(at(data, draw(st.sampled_from(paths))))
        else:
            parent[key] = draw(ODD)
    return data


RATES = ["0 bit/s", "1 bit/s", "1e-9 bit/s", "3 Mbit/s", "1e30 bit/s"]
TIMES = ["0 s", "1e-12 s", "1 ms", "1 s", "3 d", "1e300 s"]
EXTREMES: dict[str, list[Any]] = {
    "data.clients": [1, 2, 3, 40, 200],
    "data.partition": ["iid", {"kind": "dirichlet", "alpha": 1e-6}, {"kind": "label_level", "level": 3}],
    "data.train": [1, 7, 1000],
    "data.classes": [1, 2, 30],
    "data.shape": [[1, 1, 1], [3, 8, 8], [1, 5, 9], [1, 64, 64]],
    "data.test": ["partitioned"],
    "model": ["vgg9", "resnet18", "mobilenet_v2", {"name": "cnn", "width": 1}, "fedadc_cnn", "squeezenet"],
    "training.cohort": [1, 2, 8],
    "training.selection": [
        "coverage",
        "oort",
        {"kind": "tifl", "tiers": 1000, "interval": 1},
        {"kind": "refl", "duration": "1e9 s"},
        {"kind": "power_of_choice", "candidates": 1e6, "images": 1},
        {"kind": "eafl", "f": 0},
        {"kind": "fixed", "clients": [0, 1, 2]},
        {"kind": "deadline", "deadline": "0 s"},
    ],
    "training.local.epochs": [1, 5, 1000],
    "training.local.batch": [1, 3, 10_000],
    "training.local.drop_last": [True],
    "training.local.clip_norm": [0, 1e-30, None],
    "evaluation.every": [2, 100],
    "protocol": [
        {"deadline": "1e-9 s"},
        {"deadline": "1e300 s", "late": "partial"},
        {"over_select": 2.6},
        {"deadline": {"kind": "adaptive", "deviations": 0, "rounds": 1}, "late": "partial"},
        {"kind": "hierarchical", "deadline": {"kind": "adaptive", "deviations": 1e9, "first": "1e-9 s"}},
        {"kind": "hierarchical"},
        {"deadline": "100 ms", "late": "partial", "reserve": 1e9},
        {"kind": "asynchronous"},
        {"kind": "asynchronous", "buffer": 1, "concurrency": 8},
        {"kind": "asynchronous", "buffer": 8, "concurrency": 1},
    ],
    "fleet.0.share": [0, 0.5, 1],
    "fleet.0.dropout": [0, 0.5, 1],
    "failures": [
        [{"kind": "crash", "client": 1, "at": 0}, {"kind": "crash", "client": 0, "at": "20 ms", "duration": "90 ms"}],
        [{"kind": "outage", "link": ["server", "internet"], "at": "30 ms", "duration": "1 s", "one_way": True}],
        [{"kind": "outage", "link": ["client/0", "nowhere"], "at": 0}],
    ],
    "fleet.0.availability": ["always", {"kind": "diurnal"}],
    "fleet.0.profile": ["jetson-nano", "phone-flagship"],
    "network.topology.latency": TIMES,
    "network.topology.server.down": RATES,
    "network.topology.server.up": RATES,
    "network.links.5g.down": [
        *RATES,
        {"kind": "uniform", "low": "0 bit/s", "high": "0 bit/s"},
        {"kind": "process", "like": "5g_driving"},
    ],
    "network.links.5g.up": [*RATES, {"kind": "uniform", "low": "0 bit/s", "high": "1e12 bit/s"}],
    "network.links.5g.redraw": ["1 rounds", "0.25 s", "1 s", None],
    "network.links.5g.latency": TIMES,
    "network.transport": [
        {"kind": "lv08", "acknowledgements": "shared"},
        {"connection_limit": "1 bit/s"},
        {"kind": "tcp", "keep_alive": "1 h", "loss": 0.01, "queue": "fifo"},
        {"timeouts": {"connection": "1 us", "first_wait": 0, "jitter": 1}},
        {"timeouts": {"transfer": "30 ms", "retries": 0}},
        {"timeouts": {"connection": "1e10 s", "transfer": "50 ms", "retries": 300, "resume": "ranges", "chunk": 1}},
        {"kind": "tcp", "timeouts": {"connection": "70 ms", "transfer": "1 s", "factor": 1e9, "longest_wait": "1 day"}},
    ],
    "cost": [{"kind": "paper"}, {"kind": "measured"}],
    "methods": [
        ["moon", "fednova"],
        ["fedmlb"],
        ["fedalign", "gradaug"],
        [{"method": "fedbr", "scheduler": "optimal"}],
        ["feddyn"],
    ],
    "targets": [[], [1], [1e-9, 1]],
    "budgets": [
        None,
        {"seconds": "0 s"},
        {"bytes": 1},
        {"flops": 1},
        {"joules": "1e-30 J"},
        {"seconds": "1e-9 s", "bytes": 10},
    ],
    "stop": ["budget", "target", "rounds"],
    "seeds": [[0, 1], [2**53]],
    "keep_models": ["clients", "none"],
}
"""Values that each are legal somewhere, and mostly at the edge of what is."""


@st.composite
def strained(draw: st.DrawFn, original: Any) -> Any:
    """A copy with one to four values put to the edge."""
    data = copy.deepcopy(original)
    for place in draw(st.lists(st.sampled_from(sorted(EXTREMES)), min_size=1, max_size=4, unique=True)):
        *path, last = place.split(".")
        parent = data
        for key in path:
            parent = parent[int(key)] if isinstance(parent, list) else parent.setdefault(key, {})
            if not isinstance(parent, dict | list):
                return data
        parent[last] = copy.deepcopy(draw(st.sampled_from(EXTREMES[place])))
    if isinstance(data["fleet"], list) and len(data["fleet"]) == 2:
        data["fleet"][1]["share"] = 1 - data["fleet"][0]["share"]
    return data


@st.composite
def spoilt_scenarios(draw: st.DrawFn) -> Any:
    """A valid scenario of some kind, spoilt or strained."""
    valid = copy.deepcopy({**BASE, **draw(st.sampled_from(list(VARIANTS.values())))})
    return draw(st.one_of(strained(valid), spoilt(valid)))


@st.composite
def spoilt_texts(draw: st.DrawFn, text: str) -> str:
    """A text with lines removed, doubled, changed or cut short."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        what = draw(st.sampled_from(["remove", "double", "replace", "insert", "cut", "swap"]))
        if what == "remove" and len(lines) > 1:
            del lines[number]
        elif what == "double":
            lines.insert(number, lines[number])
        elif what == "replace":
            lines[number] = draw(
                st.sampled_from(
                    ["", "nan", "-1", "1e400", "a,b", "3,inf", "0,0", ",", "{", "- x: [", "é", "\x00", "1,2,3"]
                )
            )
        elif what == "insert":
            place = draw(st.integers(0, len(lines[number])))
            lines[number] = lines[number][:place] + draw(st.text(max_size=3)) + lines[number][place:]
        elif what == "cut":
            lines[number] = lines[number][: draw(st.integers(0, len(lines[number])))]
        else:
            lines[0], lines[number] = lines[number], lines[0]
    return "\n".join(lines)

"""What follows a run: what clients make of its model, what it leaves on disk, what a sweep tries."""

from __future__ import annotations

from .observation import swept, trained
from .probe import EASY, Probe, both, less, more, probes, same

EACH_ITS_OWN = {**EASY, "training.rounds": 2, "data.signal": 0.3, "data.test": "partitioned"}
"""A model of two rounds that is far from perfect, tested on each client's own classes."""
CALIBRATED = {**EACH_ITS_OWN, "personalisation": {"kind": "calibration"}}
GRID = {"sweep": {"grid": {"training.local.lr": [0.1, 0.2], "training.cohort": [2, 4]}}}

UNTOUCHED = same("events", "moved")
"""The run itself is over by then."""

PROBES: list[Probe] = probes(trained, [
    ("personalisation<calibration>.epochs", CALIBRATED, {"personalisation.epochs": 30},
     both(UNTOUCHED, more("personalised"))),
    ("personalisation<calibration>.lr", CALIBRATED, {"personalisation.lr": 2.0}, UNTOUCHED),
    ("personalisation<calibration>.proximal", {**CALIBRATED, "personalisation.epochs": 30},
     {"personalisation.proximal": 3.0}, both(UNTOUCHED, less("personalised"))),
    ("personalisation<calibration>.self_confidence", {**CALIBRATED, "personalisation.epochs": 5},
     {"personalisation.self_confidence": True}, UNTOUCHED),
    ("keep_models", {}, {"keep_models": "none"},
     both(UNTOUCHED, lambda before, after: len(after.left) < len(before.left))),
    ("keep_models", {}, {"keep_models": "clients"},
     both(UNTOUCHED, lambda before, after: len(after.left) > len(before.left))),
]) + probes(swept, [
    ("sweep.grid.*", GRID, {"sweep.grid": {"training.local.lr": [0.1, 0.2, 0.3], "training.cohort": [2, 4]}},
     lambda before, after: (len(before), len(after)) == (4, 6)),
    ("sweep.random", GRID, {"sweep.random": 2}, lambda before, after: len(after) == 2 and set(after) < set(before)),
])  # fmt: skip

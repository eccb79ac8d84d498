"""How long a run lasts, who takes part, how updates are sent and which count, and what follows."""

from __future__ import annotations

from typing import Any

from .files import FOLDER
from .observation import trained, world
from .probe import EARLIER, EASY, Probe, both, differs, less, more, probes, same

DEADLINE = {"protocol.deadline": 0.06}
STALE = {"protocol": {"kind": "asynchronous", "concurrency": 8, "buffer": 1}, "training.rounds": 12}
CELLS = {
    "network.topology": {
        "kind": "cells", "server": {"down": "2 Mbit/s", "up": "2 Mbit/s"}, "cells": 2,
        "backhaul": {"down": "1.5 Mbit/s", "up": "1.5 Mbit/s"}, "latency": "20 ms",
    }
}  # fmt: skip
AVERAGING = {**CELLS, "protocol": {"kind": "hierarchical"}}
FIXED = {"training.selection": {"kind": "fixed"}}
OORT = {"training.selection": {"kind": "oort"}, "training.rounds": 6, "training.cohort": 2}
NUMBERS = {
    **EASY, "data": {"name": "arrays", "train": str(FOLDER / "samples.npz"), "clients": 8},
    "model": {"name": "mlp", "widths": [8]}, "task": "regression", "training.local.lr": 0.001,
}  # fmt: skip
EACH_ITS_OWN = {**EASY, "training.rounds": 2, "data.signal": 0.3, "data.test": "partitioned"}
"""A model of two rounds that is far from perfect, tested on each client's own classes."""
CALIBRATED = {**EACH_ITS_OWN, "personalisation": {"kind": "calibration"}}
UNTOUCHED = same("events", "moved")
"""The run itself is over by then."""
TARGETS = {**EASY, "stop": "target", "targets": [0.75]}


def stale(**options: Any) -> dict[str, Any]:
    return {"protocol.staleness": options}


PROBES: list[Probe] = probes(world, [
    ("training.rounds", {}, {"training.rounds": 2}, EARLIER),
    ("training.cohort", {}, {"training.cohort": 8}, more("flops", "bytes", "seconds")),
    ("seeds[]", {}, {"seeds": [1]}, differs),
    # Who is picked.
    ("training.selection<uniform>.kind", FIXED, {"training.selection": "uniform"}, differs),
    ("training.selection<fixed>.kind", {}, FIXED, lambda _, after: set(after.clients) == {(0, 1, 2, 3)}),
    ("training.selection<fixed>.clients[]", FIXED, {"training.selection.clients": [4, 5, 6, 7]},
     lambda _, after: set(after.clients) == {(4, 5, 6, 7)}),
    # When a round ends.
    ("protocol<synchronous>.deadline", {}, DEADLINE, EARLIER),
    ("protocol<hierarchical>.deadline", AVERAGING, DEADLINE, EARLIER),
    # When a run ends.
    ("stop", {"budgets.seconds": 0.1}, {"stop": "budget"}, less("rounds")),
]) + probes(trained, [
    ("training.selection<oort>.decay", OORT, {"training.selection.decay": 0.1}, differs),
    # With which numbers a client trains.
    ("training.engine.kind", {"training.engine": "sequential"}, {"training.engine": "batched"},
     both(same("flops", "seconds"), lambda before, after: abs(after.moved / before.moved - 1) < 1e-3)),
    ("training.engine.precision", {}, {"training.engine.precision": "bfloat16"},
     both(same("flops", "seconds"), lambda before, after: 1e-6 < abs(after.moved / before.moved - 1) < 0.1)),
    # What an update counts that is late.
    ("protocol<asynchronous>.staleness<constant>.kind", STALE, stale(kind="constant"), more("moved")),
    ("protocol<asynchronous>.staleness<polynomial>.exponent", STALE,
     stale(kind="polynomial", exponent=2.0), less("moved")),
    ("protocol<asynchronous>.staleness<hinge>.slope", {**STALE, **stale(kind="hinge", grace=1, slope=1.0)},
     stale(kind="hinge", grace=1, slope=100.0), less("moved")),
    ("protocol<asynchronous>.staleness<hinge>.grace", {**STALE, **stale(kind="hinge", grace=1)},
     stale(kind="hinge", grace=20), more("moved")),
    ("protocol<asynchronous>.mixing", STALE, {"protocol.mixing": 0.3}, less("moved")),
    ("protocol<asynchronous>.mix", {**STALE, "protocol.mixing": 0.5}, {"protocol.mix": "models"}, differs),
    # Evaluation and targets.
    ("evaluation.every", {}, {"evaluation.every": 3}, less("evaluations")),
    ("evaluation.on", {}, {"evaluation.on": "clients"}, more("seconds", "joules")),
    ("evaluation.share", {"evaluation.on": "clients"}, {"evaluation.share": 0.2}, less("joules")),
    ("evaluation.images", {"evaluation.on": "clients"}, {"evaluation.images": 1}, less("seconds", "joules")),
    ("training.server", {}, {"training.server": "raspberry-pi-4"}, both(more("seconds"), same("joules"))),
    ("evaluation.split", {}, {"evaluation.split": "validation"}, differs),
    ("evaluation.optimum", {}, {"evaluation.optimum": True}, both(more("compared"), same("seconds", "joules"))),
    ("evaluation.ensemble.decay", {**EASY, "evaluation.ensemble": {"decay": 0}}, {"evaluation.ensemble.decay": 0.5},
     both(differs, same("moved", "accuracy"))),
    ("targets[].metric", EASY, {"targets": [{"metric": "accuracy", "at_least": 0.5}]}, both(differs, same("moved"))),
    ("targets[].at_least", {**TARGETS, "targets": [{"metric": "accuracy", "at_least": 0.75}]},
     {"targets": [{"metric": "accuracy", "at_least": 0.5}]}, less("rounds")),
    ("targets[].at_most", {**NUMBERS, "stop": "target", "targets": [{"metric": "rmse", "at_most": 1e-6}]},
     {"targets": [{"metric": "rmse", "at_most": 9.0}]}, less("rounds")),
    ("targets[]", TARGETS, {"targets": [0.5]}, both(less("rounds"), lambda _, after: after.reason == "target")),
    ("target_metric", TARGETS, {"target_metric": "accuracy_ema"}, more("rounds")),
    # How updates are sent.
    ("training.codec.up<cast>.kind", {}, {"training.codec.up": "cast"}, both(differs, less("bytes_up"))),
    ("training.codec.up<quantise>.bits", {"training.codec.up": {"kind": "quantise"}}, {"training.codec.up.bits": 4},
     both(differs, less("bytes_up"))),
    ("training.codec.up<top_k>.error_feedback", {"training.codec.up": {"kind": "top_k"}},
     {"training.codec.up.error_feedback": False}, both(differs, same("bytes"))),
    ("training.codec.down<cast>.kind", {}, {"training.codec.down": "cast"}, both(differs, less("bytes_down"))),
    ("methods[].codec.up<cast>.kind", {"methods": [{"method": "fedavg"}]}, {"methods.0.codec.up": "cast"},
     both(differs, less("bytes_up"))),
    # What clients make of the model, and what is left on disk.
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
])  # fmt: skip

"""How long a run lasts, who takes part, and whose updates count."""

from __future__ import annotations

from typing import Any

from .files import FOLDER
from .observation import trained, world
from .probe import EARLIER, EASY, LATER, Probe, both, differs, less, more, probes, same

BUDGET = {"stop": "budget"}
DEADLINE = {"protocol.deadline": 0.06}
SOME_SLOW = {"fleet.1.link": "slow", "training.rounds": 8}
FORESEEN = "protocol<synchronous>.deadline<adaptive>"
ADAPTIVE = {"kind": "adaptive", "deviations": 0, "first": "9 s"}
SLOW_WORK = {"protocol": {"deadline": 1.0, "late": "partial"}, "training.local.epochs": 2000}
BUFFERED = {"protocol": {"kind": "asynchronous", "concurrency": 4, "buffer": 2}}
STALE = {"protocol": {"kind": "asynchronous", "concurrency": 8, "buffer": 1}, "training.rounds": 12}
CELLS = {
    "network.topology": {
        "kind": "cells", "server": {"down": "2 Mbit/s", "up": "2 Mbit/s"}, "cells": 2,
        "backhaul": {"down": "1.5 Mbit/s", "up": "1.5 Mbit/s"}, "latency": "20 ms",
    }
}  # fmt: skip
AVERAGING = {**CELLS, "protocol": {"kind": "hierarchical"}}
ACCIDENTS = {"fleet.0.dropout": 0.7}
CRASHED = {"failures": [{"kind": "crash", "client": 0, "at": 0.02}]}
OUTAGE = {"kind": "outage", "link": ["server", "internet"], "at": 0.02, "duration": 1.0}
FIXED = {"training.selection": {"kind": "fixed"}}
OORT = {"training.selection": {"kind": "oort"}, "training.rounds": 6, "training.cohort": 2}
TIFL = {"training.selection": {"kind": "tifl", "tiers": 2}, "training.rounds": 6, "training.cohort": 2}
LEAVING = {
    "training.selection": {"kind": "refl", "accuracy": 1, "rest": 0}, "training.cohort": 1, "training.rounds": 5,
    "fleet.0.availability": {"kind": "diurnal", "share": 0.9, "spread": "6 h"},
    "fleet.1.availability": {"kind": "diurnal", "share": 0.5, "spread": "6 h"},
}  # fmt: skip
CHOICE = {"training.selection": {"kind": "power_of_choice"}, "training.cohort": 2}
UNEQUAL = {
    "training.selection": {"kind": "oort", "exploration": 1, "decay": 0.5, "least_exploration": 0, "cutoff": 0.1},
    "training.rounds": 8, "fleet.1.link": "slow",
}  # fmt: skip
NUMBERS = {
    **EASY, "data": {"name": "arrays", "train": str(FOLDER / "samples.npz"), "clients": 8},
    "model": {"name": "mlp", "widths": [8]}, "task": "regression", "training.local.lr": 0.001,
}  # fmt: skip
LABELS = {**NUMBERS, "data.target": "each"}
TEXT = {
    **EASY, "data": {"name": "shakespeare", "root": str(FOLDER / "plays"), "clients": 8, "window": 8},
    "model": {"name": "char_transformer", "width": 8, "heads": 2, "layers": 1},
}  # fmt: skip
SHARED = {"network.topology.server": {"down": "1 Mbit/s", "up": "1 Mbit/s"}, "fleet.1.link": "slow"}
LATE = {
    "network.topology.server": {"down": "0.3 Mbit/s", "up": "0.2 Mbit/s"}, "fleet.1.link": "slow",
    "network.links.slow.latency": "60 ms", "training.rounds": 8,
}  # fmt: skip
"""The updates of slow links begin later than the others, and should not wait for them."""
TARGETS = {**EASY, "stop": "target", "targets": [0.75]}


def oort(**options: Any) -> dict[str, Any]:
    return {f"training.selection.{name}": value for name, value in options.items()}


def bandwidth(kind: str, **options: Any) -> dict[str, Any]:
    return {"training.bandwidth": {"kind": kind, **options}}


def stale(**options: Any) -> dict[str, Any]:
    return {"protocol.staleness": options}


PROBES: list[Probe] = probes(world, [
    (f"{FORESEEN}.deviations", {**SOME_SLOW, "protocol.deadline": ADAPTIVE}, {"protocol.deadline.deviations": 50},
     LATER),
    (f"{FORESEEN}.rounds", {**SOME_SLOW, "protocol.deadline": ADAPTIVE}, {"protocol.deadline.rounds": 1}, differs),
    (f"{FORESEEN}.first", {**SOME_SLOW, "protocol.deadline": ADAPTIVE}, {"protocol.deadline.first": "100 ms"},
     EARLIER),
    ("training.rounds", {}, {"training.rounds": 2}, EARLIER),
    ("training.cohort", {}, {"training.cohort": 8}, more("flops", "bytes", "seconds")),
    ("seeds[]", {}, {"seeds": [1]}, differs),
    # Who is picked.
    ("training.selection<uniform>.kind", FIXED, {"training.selection": "uniform"}, differs),
    ("training.selection<fixed>.kind", {}, FIXED, lambda _, after: set(after.clients) == {(0, 1, 2, 3)}),
    ("training.selection<fixed>.clients[]", FIXED, {"training.selection.clients": [4, 5, 6, 7]},
     lambda _, after: set(after.clients) == {(4, 5, 6, 7)}),
    ("training.selection<deadline>.deadline", {"training.selection": {"kind": "deadline", "deadline": "1 h"}},
     {"training.selection.deadline": "60 ms"}, both(EARLIER, less("participants"))),
    ("training.selection<deadline>.asked", {"training.selection": {"kind": "deadline", "deadline": "1 h", "asked": 1}},
     {"training.selection.asked": 2}, EARLIER),
    ("training.selection<deadline>.uploads", {"training.selection": {"kind": "deadline", "deadline": "90 ms"}},
     {"training.selection.uploads": "sequential"}, less("participants")),
    # How the server's bandwidth is divided.
    ("training.bandwidth<equal>.kind", {**SHARED, **bandwidth("shortest_first")}, bandwidth("equal"), differs),
    ("training.bandwidth<proportional>.kind", {**SHARED, **bandwidth("shortest_first")}, bandwidth("proportional"),
     differs),
    ("training.bandwidth<shortest_first>.kind", SHARED, bandwidth("shortest_first"), differs),
    ("training.bandwidth<deadline_first>.kind", {**SHARED, "protocol.deadline": "10 s"}, bandwidth("deadline_first"),
     differs),
    ("training.bandwidth<least_makespan>.downloads", {**LATE, **bandwidth("least_makespan")},
     {"training.bandwidth.downloads": True}, differs),
    # When a round ends.
    ("protocol<synchronous>.deadline", {}, DEADLINE, EARLIER),
    ("protocol<synchronous>.over_select", {}, {"protocol.over_select": 2.0},
     both(more("participants", "bytes"), same("aggregated"))),
    ("protocol<synchronous>.late", DEADLINE, {"protocol.late": "partial"}, less("flops")),
    ("protocol<synchronous>.reserve", SLOW_WORK, {"protocol.reserve": 20.0}, less("flops")),
    ("protocol<synchronous>.retries", ACCIDENTS, {"protocol.retries": 5}, more("bytes", "aggregated")),
    ("protocol<asynchronous>.buffer", BUFFERED, {"protocol.buffer": 4}, both(LATER, more("aggregated"))),
    ("protocol<asynchronous>.concurrency", BUFFERED, {"protocol.concurrency": 8}, more("bytes")),
    ("protocol<asynchronous>.retries", {**BUFFERED, **ACCIDENTS}, {"protocol.retries": 5}, differs),
    ("protocol<asynchronous>.ahead", {**BUFFERED, "methods": [{"method": "fedavg", "overlap": True}]},
     {"protocol.ahead": 3}, differs),
    ("protocol<hierarchical>.deadline", AVERAGING, DEADLINE, EARLIER),
    # What fails.
    ("failures[]<crash>.client", {**FIXED, **CRASHED}, {"failures.0.client": 1}, differs),
    ("failures[]<crash>.at", {**FIXED, **CRASHED}, {"failures.0.at": 0.03}, differs),
    ("failures[]<crash>.duration", {"training.selection": {"kind": "fixed", "clients": [0, 1, 2, 3]}, **CRASHED},
     {"failures.0.duration": 0.001}, more("aggregated")),
    ("failures[]<outage>.link", {"failures": [OUTAGE]}, {"failures.0.link": ["internet", "client/0"]}, EARLIER),
    ("failures[]<outage>.at", {"failures": [OUTAGE]}, {"failures.0.at": 1000}, EARLIER),
    ("failures[]<outage>.duration", {"failures": [OUTAGE]}, {"failures.0.duration": 0.5}, EARLIER),
    ("failures[]<outage>.one_way", {"failures": [{**OUTAGE, "link": ["internet", "server"]}]},
     {"failures.0.one_way": True}, differs),
    # When a run ends.
    ("budgets.seconds", BUDGET, {"budgets.seconds": 0.1}, both(EARLIER, lambda _, after: after.reason == "seconds")),
    ("budgets.bytes", BUDGET, {"budgets.bytes": 5000}, both(less("rounds"), lambda _, after: after.reason == "bytes")),
    ("budgets.client_bytes", BUDGET, {"budgets.client_bytes": 3000}, less("rounds")),
    ("budgets.flops", BUDGET, {"budgets.flops": 1e5}, both(less("rounds"), lambda _, after: after.reason == "flops")),
    ("budgets.joules", BUDGET, {"budgets.joules": 0.5},
     both(less("rounds"), lambda _, after: after.reason == "joules")),
    ("stop", {"budgets.seconds": 0.1}, BUDGET, less("rounds")),
]) + probes(trained, [
    ("training.selection<oort>.exploration", OORT, oort(exploration=0.2), differs),
    ("training.selection<oort>.decay", OORT, oort(decay=0.1), differs),
    ("training.selection<oort>.least_exploration", {**OORT, **oort(decay=0.1)}, oort(least_exploration=0.9), differs),
    ("training.selection<oort>.penalty", {**UNEQUAL, **oort(penalty=0)}, oort(penalty=50), EARLIER),
    ("training.selection<oort>.cutoff", {**OORT, **oort(exploration=0)}, oort(cutoff=0), differs),
    ("training.selection<oort>.percentile", {**OORT, **oort(exploration=0)}, oort(percentile=100), differs),
    ("training.selection<oort>.pacer_step", {**OORT, **oort(exploration=0, window=1, penalty=50)},
     oort(pacer_step=100), differs),
    ("training.selection<oort>.window", {**OORT, **oort(exploration=0, pacer_step=100, penalty=50)},
     oort(window=1), differs),
    ("training.selection<tifl>.tiers", TIFL, {"training.selection.tiers": 1}, differs),
    ("training.selection<tifl>.probabilities[]", {**TIFL, "training.selection.probabilities": [1, 0]},
     {"training.selection.probabilities": [0, 1]}, differs),
    ("training.selection<tifl>.interval", TIFL, {"training.selection.interval": 1}, differs),
    ("training.selection<tifl>.credits[]", {**TIFL, "training.selection.credits": [9, 0]},
     {"training.selection.credits": [0, 9]}, differs),
    ("training.selection<tifl>.timeout", {**TIFL, "fleet.1.link": "slow"}, {"training.selection.timeout": "150 ms"},
     EARLIER),
    ("training.selection<refl>.duration", LEAVING, {"training.selection.duration": "20 h"}, differs),
    ("training.selection<refl>.smoothing", {**LEAVING, "training.selection.duration": "20 h"},
     {"training.selection.smoothing": 1}, differs),
    ("training.selection<refl>.accuracy", LEAVING, {"training.selection.accuracy": 0}, differs),
    ("training.selection<refl>.rest", {"training.selection": {"kind": "refl", "accuracy": 1, "rest": 0}},
     {"training.selection.rest": 1}, differs),
    ("training.selection<power_of_choice>.candidates", CHOICE, {"training.selection.candidates": 4},
     more("bytes", "flops")),
    ("training.selection<power_of_choice>.losses", CHOICE, {"training.selection.losses": "reported"},
     less("bytes", "flops")),
    ("training.selection<power_of_choice>.images", CHOICE, {"training.selection.images": 5}, less("flops")),
    ("training.selection<eafl>.f", {"training.selection": {"kind": "eafl", "f": 1, "exploration": 0},
     "training.cohort": 2, "fleet.0.profile": "phone-low-end", "training.rounds": 12}, oort(f=0), differs),
    ("training.selection<coverage>.tries", {"training.selection": {"kind": "coverage"}, "training.cohort": 2},
     {"training.selection.tries": 1}, differs),
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
    ("task<classification>.metric", {**EASY, "training.rounds": 1},
     {"task": {"kind": "classification", "metric": "macro_f1"}}, both(same("moved", "loss"), less("accuracy"))),
    ("task<regression>.kind", {**NUMBERS, "task": "classification"}, {"task": "regression"}, less("flops", "bytes")),
    ("task<regression>.loss", NUMBERS, {"task": {"kind": "regression", "loss": "huber"}}, less("moved", "loss")),
    ("task<regression>.metric", NUMBERS, {"task": {"kind": "regression", "metric": "mae"}},
     both(same("moved", "loss"), less("accuracy"))),
    ("task<multilabel>.kind", {**LABELS, "task": "regression"}, {"task": "multilabel"}, both(same("bytes"), differs)),
    ("task<language_model>.metric", {**TEXT, "task": "language_model"},
     {"task": {"kind": "language_model", "metric": "accuracy"}}, both(same("moved", "loss"), less("accuracy"))),
    ("targets[].metric", EASY, {"targets": [{"metric": "accuracy", "at_least": 0.5}]}, both(differs, same("moved"))),
    ("targets[].at_least", {**TARGETS, "targets": [{"metric": "accuracy", "at_least": 0.75}]},
     {"targets": [{"metric": "accuracy", "at_least": 0.5}]}, less("rounds")),
    ("targets[].at_most", {**NUMBERS, "stop": "target", "targets": [{"metric": "rmse", "at_most": 1e-6}]},
     {"targets": [{"metric": "rmse", "at_most": 9.0}]}, less("rounds")),
    ("targets[]", TARGETS, {"targets": [0.5]}, both(less("rounds"), lambda _, after: after.reason == "target")),
    ("target_metric", TARGETS, {"target_metric": "accuracy_ema"}, more("rounds")),
])  # fmt: skip

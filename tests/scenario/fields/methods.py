"""Which method trains, with which options of its parts."""

from __future__ import annotations

from typing import Any

from edgefl.methods.parts.server import SERVER_UPDATES
from edgefl.methods.recipe import METHODS

from .observation import refused, trained
from .probe import (
    EARLIER,
    FARTHER,
    NEARER,
    Changes,
    Expected,
    Probe,
    accepted,
    both,
    differs,
    less,
    more,
    probes,
    same,
    says,
)

RESIDUAL = {"data.shape": [1, 16, 16], "model": {"name": "resnet56"}, "training.rounds": 1, "training.cohort": 2,
            "training.local": {"steps": 1, "batch": 4, "lr": 0.1}}  # fmt: skip
"""Residual blocks that can be skipped, on images of any size."""
SHORT = {**RESIDUAL, "training.local": {"steps": 1, "batch": 4, "lr": 0.1}, "training.cohort": 1}
NORMALISED = {"model.width": 8, "model.norm": "group"}
"""Without normalisation the spectral norm of FedAlign's sub-block may stay at 0."""
BRINGS: dict[str, Changes] = {"stochdepth": RESIDUAL, "gradaug": SHORT, "fedalign": NORMALISED}


def method(name: str, **options: Any) -> Changes:
    return {**BRINGS.get(name, {}), "methods": [{"method": name, **options}]}


def option(**options: Any) -> Changes:
    return {f"methods.0.{name}": value for name, value in options.items()}


def server(kind: str, **options: Any) -> Changes:
    return method(HOSTS.get(kind, "fedavg"), server={"kind": kind, **options})


DERIVED = {
    **dict.fromkeys(("kd", "ntd", "fedrs", "fedmlb", "fedbr", "fedavgm", "slowmo", "feddyn", "fedadc", "fedadc+")),
    **dict.fromkeys(("mixup", "stochdepth", "heterofl", "fjord", "depthfl")),
    "fedalign": ("rescale", "detach_full"),
    "fedgkd": ("buffer", "temperature"),
    "gradaug": ("subnets", "min_width"),
    "moon": ("projection", "reads"),
}
"""Options that stand in a formula of tests/methods: those named, or every one of the method."""

WAITING: dict[str, Any] = {"local": {"common_finish": {"share": 0.25, "drop_late": False}}}
PARTS: list[tuple[str, str, dict[str, Any], Any, Expected]] = [
    # A method, an option, what it needs beside, another value, what follows.
    ("fedprox", "mu", {}, 5.0, NEARER),
    # All clients share the server's link, which predictions leave out, so all would be late.
    ("timelyfl", "blocks", WAITING, "foreseen", differs),
    ("timelyfl", "server_lr", WAITING, 0.5, NEARER),
    ("fedalign", "mu", {}, 5.0, differs),
    ("fedalign", "sub_width", {}, 0.75, differs),
    ("fedgkd", "gamma", {}, 5.0, NEARER),
    ("fitnet", "gamma", {}, 5.0, NEARER),
    ("gradaug", "mu", {}, 9.0, differs),
    ("gradaug", "sizes[]", {}, [0.5], less("flops")),
    ("moon", "mu", {}, 9.0, differs),
    ("moon", "temperature", {}, 5.0, differs),
    ("central", "profile", {}, "jetson-nano", both(more("seconds"), less("joules"))),
    ("scaffold", "control_upload", {}, "derived", less("bytes_up")),
    ("fedadam", "beta_1", {}, 0.5, differs),
    ("fedadam", "tau", {}, 1.0, NEARER),
    ("fedadam", "beta_2", {}, 0.5, differs),
]  # fmt: skip


def option_probes() -> list[tuple[str, Changes, Changes, Expected]]:
    """The parts' own options, the server's learning rate of every method."""
    rows = [
        (f"methods[]<{name}>.{field}", method(name, **needs), option(**{field.removesuffix("[]"): value}), expected)
        for name, field, needs, value, expected in PARTS
    ]
    return [*rows, ("methods[]<fedavg>.server_lr", method("fedavg"), option(server_lr=0.5), NEARER)]


HOSTS = {kind: kind for kind in ("scaffold", "fedadc", "fedgkd")}
"""The method beside which a server update makes sense, where that is not FedAvg."""

OPTIONS = {"trimmed_mean": {"share": 0.3}}
"""Options without which it is refused in a cohort of four."""

UNEVEN = {"data.partition": {"kind": "dirichlet", "alpha": 0.5, "balanced": False, "min_size": 1}}
BLOCKS = {"methods": [{"method": "fedbr"}], "training.rounds": 6, "training.cohort": 8}
LONG = {**BLOCKS, "training.rounds": 24, "training.cohort": 2, "data.clients": 2, "data.train": 24,
        "fleet.0.count": 1, "fleet.1.count": 1}  # fmt: skip
"""Two clients, who have tried each number of blocks by the end."""


def scheduled(kind: str, **options: Any) -> Changes:
    return {"methods.0.scheduler": {"kind": kind, **options}}


PROBES: list[Probe] = probes(trained, [
    *((f"methods[]<{name}>.method", {**method(name), "methods": ["fedprox" if name == "fedavg" else "fedavg"]},
       method(name), differs) for name in METHODS.names() if name not in {*DERIVED, *(part[0] for part in PARTS)}),
    *((f"methods[].server<{kind}>.kind", {**UNEVEN, **server("fedavgm" if kind == "mean" else "mean")},
       server(kind, **OPTIONS.get(kind, {})), differs)
      for kind in SERVER_UPDATES.names() if kind not in {*HOSTS, "flower"}),
    *option_probes(),
    ("methods[].server<fedavgm>.beta", server("fedavgm"), {"methods.0.server.beta": 0.9}, FARTHER),
    ("training.local.lr", {"training.local": {"batch": 4, "lr": 0.1}}, {"training.local.lr": 0.2}, FARTHER),
    ("training.local.precision", {}, {"training.local.precision": "bfloat16"},
     both(same("moved"), less("seconds", "joules"))),
    ("methods[].local.lr", method("fedavg", local={"lr": 0.1}), {"methods.0.local.lr": 0.2}, FARTHER),
    ("methods[].weighting", {**UNEVEN, **method("fedavg")}, option(weighting="uniform"), differs),
    ("methods[].overlap", method("fedadc"), option(overlap=True), both(EARLIER, same("moved", "loss"))),
    ("methods[].scheduler<gmbs>.lam", LONG, scheduled("gmbs", lam=1.0), differs),
    ("methods[].scheduler<gmbs>.bonus_scale", LONG, scheduled("gmbs", bonus_scale=0.0), differs),
    # FedNova divides by what the clients' steps come to, and so must be told their momentum.
]) + probes(refused, [
    ("methods[]<fednova>.local_momentum", method("fednova", local={"momentum": 0.5}), option(local_momentum=0.5),
     accepted),
    # Their clients must follow them, as only those of their own methods do.
    *((f"methods[].server<{kind}>.kind", server("mean"), {"methods.0.server": {"kind": kind}},
     says("cannot be used with method 'fedavg'")) for kind in HOSTS),
])  # fmt: skip

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


LOCAL: list[tuple[str, Any, Any, Expected]] = [
    # An option of a client's local training, two values, and what follows from the one to the other.
    ("epochs", 1, 3, both(more("flops"), FARTHER)),
    ("steps", 3, 9, both(more("flops"), FARTHER)),
    ("batch", 4, 12, both(NEARER, same("aggregated"))),
    ("accumulate", 1, 3, both(NEARER, same("aggregated"))),
    ("precision", "float32", "bfloat16", both(same("moved"), less("seconds", "joules"))),
    ("lr", 0.1, 0.2, FARTHER),
    ("lr_decay", 1.0, 0.2, NEARER),
    ("momentum", 0.0, 0.5, FARTHER),
    ("nesterov", False, True, differs),
    ("weight_decay", 0.0, 0.5, differs),
    ("clip_norm", None, 0.01, NEARER),
    ("drop_last", False, True, less("flops")),
]
NEEDS: dict[str, dict[str, Any]] = {"nesterov": {"momentum": 0.5}, "drop_last": {"batch": 5}, "steps": {"epochs": None}}


TWO_DEVICES: Changes = {"training.cohort": 8}
FINISH: list[tuple[str, dict[str, Any], Any, Any, Expected]] = [
    # An option of the common finish, what it needs beside, two values, what follows.
    ("share", {}, 1.0, 0.25, less("flops")),
    ("unit", {}, "steps", "epochs", less("flops")),
    ("most", {}, None, 1, less("flops")),
    ("drop_late", {"share": 0.25}, False, True, less("aggregated")),
]


def local_probes() -> list[tuple[str, Changes, Changes, Expected]]:
    """Every option of local training."""
    field, local = "training.local", {"batch": 4, "lr": 0.1}
    return [
        (f"{field}.common_finish.{name}", {**TWO_DEVICES, field: {**local, "common_finish": {**needed, name: small}}},
         {f"{field}.common_finish.{name}": large}, expected)
        for name, needed, small, large, expected in FINISH
    ] + [
        (f"{field}.{name}", {field: {**local, **NEEDS.get(name, {}), name: small}}, {f"{field}.{name}": large},
         expected)
        for name, small, large, expected in LOCAL
    ]  # fmt: skip


DERIVED = ("kd", "ntd", "fedrs", "fedmlb", "fjord")
"""Methods whose every option stands in a formula of tests/methods."""

WAITING: dict[str, Any] = {"local": {"common_finish": {"share": 0.25, "drop_late": False}}}
PARTS: list[tuple[str, str, dict[str, Any], Any, Expected]] = [
    # A method, an option, what it needs beside, another value, what follows.
    ("fedprox", "mu", {}, 5.0, NEARER),
    # All clients share the server's link, which predictions leave out, so all would be late.
    ("timelyfl", "blocks", WAITING, "foreseen", differs),
    ("timelyfl", "server_lr", WAITING, 0.5, NEARER),
    ("fedalign", "mu", {}, 5.0, differs),
    ("fedalign", "sub_width", {}, 0.75, differs),
    ("fedalign", "rescale", {}, False, differs),
    ("fedalign", "detach_full", {}, False, differs),
    ("fedbr", "lambda_1", {}, 5.0, differs),
    ("fedbr", "lambda_2", {}, 5.0, differs),
    ("fedbr", "temperature", {}, 5.0, differs),
    ("fedbr", "full_every", {}, 1, more("bytes_down")),
    ("fedbr", "full_to", {}, "all", more("bytes_down", "joules")),
    ("fedbr", "first_send", {}, "none", less("bytes_down")),
    ("fedbr", "block_bytes", {}, "uniform", differs),
    ("fedbr", "max_stale", {"full_every": 6}, 1, more("bytes_down")),
    ("fedbr", "gmbs_on_full_rounds", {}, True, differs),
    ("feddyn", "alpha", {}, 1.0, differs),
    ("feddyn", "scale_alpha", {}, True, differs),
    ("fedgkd", "buffer", {}, 1, differs),
    ("fedgkd", "gamma", {}, 5.0, NEARER),
    ("fedgkd", "temperature", {}, 5.0, differs),
    ("fitnet", "gamma", {}, 5.0, NEARER),
    ("gradaug", "subnets", {}, 1, less("flops")),
    ("gradaug", "min_width", {}, 0.3, differs),
    ("gradaug", "mu", {}, 9.0, differs),
    ("gradaug", "sizes[]", {}, [0.5], less("flops")),
    ("mixup", "mixing", {}, 5.0, differs),
    ("moon", "mu", {}, 9.0, differs),
    ("moon", "temperature", {}, 5.0, differs),
    ("moon", "projection", {}, 8, less("bytes")),
    ("moon", "reads", {}, "maps", less("bytes")),
    ("central", "profile", {}, "jetson-nano", both(more("seconds"), less("joules"))),
    ("scaffold", "control_upload", {}, "derived", less("bytes_up")),
    ("heterofl", "levels[]", {}, [0.5], less("bytes", "flops")),
    ("heterofl", "deadline", {}, 1e-9, less("bytes", "flops")),
    ("depthfl", "levels[]", {}, [0.34], less("bytes", "flops")),
    ("depthfl", "deadline", {}, 1e-9, less("bytes", "flops")),
    ("depthfl", "consistency", {"ramp": 0}, 5.0, differs),
    ("depthfl", "ramp", {}, 1, differs),
    ("depthfl", "temperature", {"ramp": 0}, 5.0, differs),
    ("depthfl", "grid", {}, 1, less("bytes", "flops")),
    ("depthfl", "ensemble", {}, False, differs),
    ("heterofl", "scaler", {"levels": [0.5]}, False, differs),
    ("heterofl", "mask_absent", {"levels": [0.5]}, True, differs),
    ("stochdepth", "survival", {}, 0.1, differs),
    ("fedadc", "variant", {}, "blue", differs),
    ("fedadc", "beta_l", {}, 0.1, differs),
    ("fedadc", "beta_g", {}, 0.1, differs),
    ("fedadc", "alpha", {}, 0.5, NEARER),
    ("fedadc", "phi", {"variant": "double"}, 0.1, differs),
    ("fedadc", "full_to", {}, "all", both(same("moved", "loss"), more("bytes_down", "joules"))),
    ("fedadc+", "lam", {}, 0.9, differs),
    ("fedadc+", "temperature", {}, 5.0, differs),
    ("fedadc+", "teacher", {}, "local", differs),
    ("fedadam", "beta_1", {}, 0.5, differs),
    ("fedadam", "tau", {}, 1.0, NEARER),
    ("fedadam", "beta_2", {}, 0.5, differs),
    ("fedavgm", "beta", {}, 0.9, FARTHER),
    ("slowmo", "beta", {}, 0.1, NEARER),
    ("slowmo", "alpha", {}, 0.5, NEARER),
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
    *local_probes(),
    ("methods[].local.lr", method("fedavg", local={"lr": 0.1}), {"methods.0.local.lr": 0.2}, FARTHER),
    ("methods[].weighting", {**UNEVEN, **method("fedavg")}, option(weighting="uniform"), differs),
    ("methods[].overlap", method("fedadc"), option(overlap=True), both(EARLIER, same("moved", "loss"))),
    ("methods[].scheduler<gmbs>.lam", LONG, scheduled("gmbs", lam=1.0), differs),
    ("methods[].scheduler<gmbs>.bonus_scale", LONG, scheduled("gmbs", bonus_scale=0.0), differs),
    ("methods[].scheduler<all>.kind", BLOCKS, scheduled("all"), more("bytes_down")),
    ("methods[].scheduler<random>.kind", {**BLOCKS, **scheduled("all")}, scheduled("random"), less("bytes_down")),
    ("methods[].scheduler<fixed>.alpha", {**BLOCKS, **scheduled("fixed", alpha=1)}, scheduled("fixed", alpha=3),
     more("bytes_down")),
    ("methods[].scheduler<optimal>.bytes", {**BLOCKS, **scheduled("optimal")}, scheduled("optimal", bytes="3 kB"),
     less("bytes_down")),
    ("methods[].scheduler<optimal>.seconds", {**BLOCKS, **scheduled("optimal")}, scheduled("optimal", seconds="60 ms"),
     less("bytes_down")),
    # FedNova divides by what the clients' steps come to, and so must be told their momentum.
]) + probes(refused, [
    ("methods[]<fednova>.local_momentum", method("fednova", local={"momentum": 0.5}), option(local_momentum=0.5),
     accepted),
    # Their clients must follow them, as only those of their own methods do.
    *((f"methods[].server<{kind}>.kind", server("mean"), {"methods.0.server": {"kind": kind}},
     says("cannot be used with method 'fedavg'")) for kind in HOSTS),
])  # fmt: skip

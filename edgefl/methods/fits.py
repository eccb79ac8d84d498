"""What the parts of a method need, and what they take from each other; the words are in :mod:`edgefl.methods.needs`."""

<<<<<<< HEAD
from edgefl.methods.needs import Need, Requirement
from edgefl.methods.recipe import Method


def requirements_of(method: Method) -> list[Requirement]:
    """The parts of a method with their needs; each class declares its own as ``needs``."""
    label, server = f"method '{method.label}'", method.server
    controls: set[Need] = {"whole model"} if server.broadcasts or server.client_state() is not None else set()
    controls |= {"server start"} if server.client_state() is not None else set()
    own_rule: set[Need] = set() if method.chosen_rule else {"sgd"}
    parts = [
        Requirement(type(method.objective).__name__, method.objective.needs),
        Requirement(f"the local rule of {label}", method.rule.needs | own_rule, "local"),
        Requirement(f"server update '{server.registered_name}'", server.needs | controls, "server"),
        Requirement(f"the payload of {label}", method.payload.needs),
    ]
    if server.reads:
        alike: set[Need] = {"each update", "whole model", "one size", "server start", "exact uplink", "plain traffic"}
        parts.insert(0, Requirement("the average of the optimizers' states", frozenset(alike), "local.optimizer"))
    if method.submodels is not None:
        parts.append(Requirement(f"training at several capacities in {label}", method.submodels.needs))
    if method.objective.trains_last:
        parts.append(Requirement(f"training of the last blocks in {label}", frozenset({"plain traffic"}), "codec"))
    if method.overlap:
        parts.append(Requirement("overlap", frozenset({"early cohort"}), "overlap"))
    if method.local.common_finish is not None:
        finish = frozenset[Need]({"rounds", "step seconds"})
        parts.append(Requirement(f"the common finish of {label}", finish, "local.common_finish"))
    if method.state is not None or method.payload.sends_blocks:
        parts.append(Requirement(f"what clients of {label} keep", frozenset({"one size"})))
    return parts


def taken_by(method: Method) -> dict[Need, str]:
    """What a method's own parts and options take."""
    takes, codecs, label = method.rule.takes(), method.codecs, f"method '{method.label}'"
    if method.submodels is not None or method.objective.trains_last:
        takes["whole model"] = takes["one size"] = f"clients of {label} train parts of the model of different sizes"
    if method.objective.evaluates_clients:
        takes["whole model"] = f"clients of {label} send nothing"
    if method.payload.sends_blocks:
        takes["server start"] = f"{label} sends only some blocks"
    if (kind := method.local.optimizer.kind) != "sgd":
        takes["sgd"] = f"local.optimizer is {kind}; expected local: {{optimizer: sgd}}"
    if method.objective.proximal_weight is None:
        name = type(method.objective).__name__
        takes["known steps"] = f"{name} reads the received model, and has no `proximal_weight`"
    if method.local.lr_of_steps(0, 1):
        takes["round's rate"] = "local.lr changes over steps; expected over: rounds"
    if method.local.momentum:
        takes["no momentum"] = f"local.momentum is {method.local.momentum:g}; expected local: {{momentum: 0}}"
    if not codecs.up.exact:
        takes["exact uplink"] = "the codec of the uplink rounds"
    if not (codecs.up.exact and codecs.down.exact):
        takes["plain traffic"] = "a codec encodes them; expected codec: {up: none, down: none}"
=======
A part declares its needs, names of :data:`NEEDS`. A protocol, codec, model, network or another part of the method
*takes* some of them: it gives the reason for each. A part fits if nothing takes one of its needs. docs/methods.md
contains the table of all methods, which docs/site/fit_matrix.py generates from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.models.block_model import BlockModel
    from edgefl.models.layout import Layout

Need = Literal[
    "each update", "plain sum", "own start", "rounds", "deadline", "whole model", "one size", "server start",
    "shared model", "zero momentum", "no momentum", "sgd", "known steps", "round's rate", "exact uplink",
    "plain traffic", "early cohort", "step seconds", "classes", "features", "images", "blocks", "depths", "widths",
    "residual blocks", "cells", "star", "server's links",
]  # fmt: skip

NEEDS: dict[Need, str] = {
    "each update": "each client's update on its own",
    "plain sum": "the plain sum of the clients' changes",
    "own start": "updates that are changes of the model that each client received",
    "rounds": "rounds that begin for all clients at once",
    "deadline": "a deadline",
    "whole model": "all parameters of the model from each client",
    "one size": "clients that all train the same model",
    "server start": "clients that start from the server's model",
    "shared model": "a model of which clients keep no part for themselves",
    "zero momentum": "local momentum that starts at zero in every round",
    "no momentum": "local steps without momentum",
    "sgd": "local steps of SGD",
    "known steps": "local steps of a known weight",
    "round's rate": "one learning rate for all local steps of a round",
    "exact uplink": "updates that are not rounded",
    "plain traffic": "transfers that are not encoded",
    "early cohort": "a cohort that is known before the previous round ends",
    "step seconds": "the seconds of a local step",
    "classes": "predictions of classes",
    "features": "one vector of features for each sample",
    "images": "images [channels, height, width]",
    "blocks": "a model of several blocks",
    "depths": "a model of three or more blocks",
    "widths": "layers that can be narrowed",
    "residual blocks": "residual blocks",
    "cells": "cells that average",
    "star": "transfers that share one link",
    "server's links": "rates that the server decides",
}
"""The words for each need in a sentence."""

Takes = Mapping[Need, str]
"""For each need that something takes away, the reason, and what to write instead."""


class Part(NamedTuple):
    """What needs something: its name in sentences, its needs, and its field in a method's entry."""

    name: str
    needs: frozenset[Need]
    field: str | None = None


class Misfit(UserError):  # noqa: N818  (what it is)
    """Something takes the ``need`` of a part."""

    need: Need


def missing(part: Part, takes: Takes) -> Need | None:
    """The first need of a part, in the order of :data:`NEEDS`, that is taken."""
    return next((need for need in NEEDS if need in part.needs and need in takes), None)


def check(parts: Iterable[Part], *taking: Takes) -> None:
    """Check that all parts fit.

    >>> check([Part("FedBR", frozenset({"blocks"}))], {"blocks": "this model is one block"})
    Traceback (most recent call last):
    edgefl.methods.fits.Misfit: FedBR needs a model of several blocks, and this model is one block
    """
    for part in parts:
        for takes in taking:
            if (need := missing(part, takes)) is not None:
                error = Misfit(f"{part.name} needs {NEEDS[need]}, and {takes[need]}", field=part.field)
                error.need = need
                raise error


def taken_by_model(model: BlockModel) -> dict[Need, str]:
    """What a model and its task do not have."""
    task, whole = model.task, f": {model.whole}" if model.whole else ""
    several = len(task.output_shape(model.classes, model.sample_shape)) > 1
    lacking: dict[Need, tuple[bool, str]] = {
        "classes": (not task.classes, f"task '{task.kind}' has none; expected task: classification"),
        "features": (several, f"task '{task.kind}' has one for each place"),
        "images": (len(model.sample_shape) != 3, f"this model takes inputs of the shape {list(model.sample_shape)}"),
        "blocks": (model.depth < 2, f"this model is one block{whole}"),
        "depths": (model.depth < 3, f"this model has {model.depth}{whole}"),
        "widths": (not model.slimmable, "this model's cannot; use a model of edgefl (edgefl models)"),
        "residual blocks": (not model.residual_count, "this model has none; use a resnet"),
    }
    return {need: reason for need, (lacks, reason) in lacking.items() if lacks}


def taken_by_layout(layout: Layout) -> dict[Need, str]:
    """What clients take that keep a part of a model for themselves."""
    takes: dict[Need, str] = {"shared model": "clients keep a part of this model"} if layout.local else {}
    if layout.local_parameters:
        takes["whole model"] = "clients keep some of this model's for themselves; expected only buffers in `local`"
>>>>>>> main
    return takes

"""What parts need, what else in a scenario takes it away, and the check that they fit.

A part declares its needs, names of :data:`NEEDS`. A protocol, codec, model, network or another part of the method
*takes* some of them: it gives the reason for each. A part fits if nothing takes one of its needs. docs/methods.md
contains the table of all methods, which docs/site/fit_matrix.py generates from the parts.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from edgefl.errors import UserError

Need = Literal[
    "each update", "plain sum", "own start", "rounds", "deadline", "whole model", "one size", "server start",
    "shared model", "zero momentum", "no momentum", "sgd", "known steps", "round's rate", "exact uplink",
    "exact downlink", "plain traffic", "early cohort", "step seconds", "single examples", "classes", "logits",
    "features", "images", "blocks", "depths", "widths", "residual blocks", "cells", "star", "server's links", "server",
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
    "exact downlink": "downloads that are not rounded",
    "plain traffic": "transfers that are not encoded",
    "early cohort": "a cohort that is known before the previous round ends",
    "step seconds": "the seconds of a local step",
    "single examples": "a loss of each example on its own",
    "classes": "predictions of one class for each sample",
    "logits": "predictions of classes or tokens",
    "features": "one vector of features for each sample",
    "images": "images [channels, height, width]",
    "blocks": "a model of several blocks",
    "depths": "a model of three or more blocks",
    "widths": "layers that can be narrowed",
    "residual blocks": "residual blocks",
    "cells": "cells that average",
    "star": "transfers that share one link",
    "server's links": "rates that the server decides",
    "server": "a server",
}
"""The words for each need in a sentence."""

Takes = Mapping[Need, str]
"""For each need that something takes away, the reason, and what to write instead."""


class Requirement(NamedTuple):
    """What needs something: its name in sentences, its needs, and its field in a method's entry."""

    name: str
    needs: frozenset[Need]
    field: str | None = None


class Misfit(UserError):  # noqa: N818  (what it is)
    """Something takes the ``need`` of a part."""

    need: Need


def missing(part: Requirement, takes: Takes) -> Need | None:
    """The first need of a part, in the order of :data:`NEEDS`, that is taken."""
    return next((need for need in NEEDS if need in part.needs and need in takes), None)


def check(parts: Iterable[Requirement], *taking: Takes) -> None:
    """Check that all parts fit.

    >>> check([Requirement("FedBR", frozenset({"blocks"}))], {"blocks": "this model is one block"})
    Traceback (most recent call last):
    edgefl.methods.fits.Misfit: FedBR needs a model of several blocks, and this model is one block
    """
    for part in parts:
        for takes in taking:
            if (need := missing(part, takes)) is not None:
                error = Misfit(f"{part.name} needs {NEEDS[need]}, and {takes[need]}", field=part.field)
                error.need = need
                raise error

"""How what is sent is encoded: every option on the way up, and that the other places use it."""

from __future__ import annotations

from typing import Any

from .observation import trained
from .probe import Changes, Probe, both, differs, less, more, probes, same

FIELD = "training.codec.up"
SENT = less("bytes_up")


def codec(kind: str, **options: Any) -> Changes:
    return {FIELD: {"kind": kind, **options}}


def option(name: str, value: Any) -> Changes:
    return {f"{FIELD}.{name}": value}


PROBES: list[Probe] = probes(trained, [
    (f"{FIELD}<none>.kind", codec("cast"), codec("none"), more("bytes_up")),
    (f"{FIELD}<cast>.kind", {}, codec("cast"), both(differs, SENT)),
    (f"{FIELD}<cast>.to", codec("cast"), option("to", "bfloat16"), both(differs, same("bytes"))),
    (f"{FIELD}<quantise>.bits", codec("quantise"), option("bits", 4), both(differs, SENT)),
    (f"{FIELD}<quantise>.scale", codec("quantise"), option("scale", "channel"), both(differs, more("bytes_up"))),
    (f"{FIELD}<quantise>.rounding", codec("quantise"), option("rounding", "stochastic"),
     both(differs, same("bytes"))),
    (f"{FIELD}<top_k>.fraction", codec("top_k"), option("fraction", 0.1), both(differs, more("bytes_up"))),
    (f"{FIELD}<top_k>.error_feedback", codec("top_k"), option("error_feedback", False), both(differs, same("bytes"))),
    ("training.codec.down<cast>.kind", {}, {"training.codec.down": "cast"}, both(differs, less("bytes_down"))),
    ("methods[].codec.up<cast>.kind", {"methods": [{"method": "fedavg"}]}, {"methods.0.codec.up": "cast"},
     both(differs, SENT)),
    ("methods[].codec.down<quantise>.kind", {"methods": [{"method": "fedavg"}]}, {"methods.0.codec.down": "quantise"},
     both(differs, less("bytes_down"))),
])  # fmt: skip

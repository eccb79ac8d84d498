"""How what is sent is encoded, in either direction, for all methods or for one."""

from __future__ import annotations

from typing import Any

from .observation import trained
from .probe import Changes, Expected, Probe, both, differs, less, more, probes, same


def codec_probes(section: str, way: str) -> list[tuple[str, Changes, Changes, Expected]]:
    """Everything that the codec of one direction may say there."""
    sent = f"bytes_{way}"
    field = f"{section.replace('.0.', '[].')}.{way}"
    base: Changes = {"methods": [{"method": "fedavg"}]}

    def codec(kind: str, **options: Any) -> Changes:
        return {**base, f"{section}.{way}": {"kind": kind, **options}}

    def option(name: str, value: Any) -> Changes:
        return {f"{section}.{way}.{name}": value}

    rows = [
        (f"{field}<none>.kind", codec("cast"), codec("none"), more(sent)),
        (f"{field}<cast>.kind", base, codec("cast"), both(differs, less(sent))),
        (f"{field}<cast>.to", codec("cast"), option("to", "bfloat16"), both(differs, same("bytes"))),
        (f"{field}<quantise>.kind", base, codec("quantise"), both(differs, less(sent))),
        (f"{field}<quantise>.bits", codec("quantise"), option("bits", 4), both(differs, less(sent))),
        (f"{field}<quantise>.scale", codec("quantise"), option("scale", "channel"), both(differs, more(sent))),
        (f"{field}<quantise>.rounding", codec("quantise"), option("rounding", "stochastic"),
         both(differs, same("bytes"))),
    ]  # fmt: skip
    if way == "up":  # it is for changes, not for models
        rows += [
            (f"{field}<top_k>.kind", base, codec("top_k"), both(differs, less(sent))),
            (f"{field}<top_k>.fraction", codec("top_k"), option("fraction", 0.1), both(differs, more(sent))),
            (f"{field}<top_k>.error_feedback", codec("top_k"), option("error_feedback", False),
             both(differs, same("bytes"))),
        ]  # fmt: skip
    return rows


PROBES: list[Probe] = probes(
    trained,
    [row for section in ("training.codec", "methods.0.codec") for way in ("up", "down")
     for row in codec_probes(section, way)],
)  # fmt: skip

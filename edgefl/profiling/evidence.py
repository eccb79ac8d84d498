"""State in a profile where the figures of its processor come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIGURES = ("fp32_achievable", "memory_bandwidth", "operator_overhead", "step_overhead", "operator_rates")
"""The figures of ``compute`` that give the seconds of a step."""


def with_evidence(provenance: Mapping[str, Any], evidence: Mapping[str, Any], how: str) -> dict[str, Any]:
    """Return a section ``provenance`` in which the speed has other evidence; that of other sections stays.

    Args:
        provenance: the section as plain data.
        evidence: what confirms the figures of ``compute``.
        how: how each of them follows from the sources.
    """
    others = {path: each for path, each in provenance.get("evidence", {}).items() if path.split(".")[0] != "compute"}
    return {
        **provenance,
        "evidence": {**others, "compute": {name: each for name, each in evidence.items() if each is not None}},
        "derivation": {**provenance.get("derivation", {}), **{f"compute.{figure}": how for figure in FIGURES}},
    }

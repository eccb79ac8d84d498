"""Every field of a scenario changes what happens, in the direction that its description states.

The tables beside this file hold a probe for each field: a small scenario, another value, and what must follow. A new
field needs one, or a reason below why it can change nothing.
"""

from __future__ import annotations

import pytest

from . import afterwards, codecs, data_and_model, fleet, limits_and_protocol, methods, network_and_cost
from .probe import Probe
from .walk import fields

PROBES: list[Probe] = [
    probe
    for table in (data_and_model, limits_and_protocol, fleet, network_and_cost, methods, codecs, afterwards)
    for probe in table.PROBES
]

NOTHING_FOLLOWS = {
    "name": "what the run is called",
    "methods[].as": "what the method is called",
    "data<huggingface>": "needs a library of an extra (tests/data/sets/test_huggingface.py)",
    "published[]": "numbers of a paper, which reports show beside those of a run",
    "sweep.halving": "settings that a search tries and for how long, no run's rounds (tests/experiment/test_search.py)",
    "sweep.optuna": "likewise",
    "sweep.ranges": "likewise",
    "fleet[].profile.name": "what the device is called",
    "fleet[].profile.kind": "what sort of device it is, for readers",
    "fleet[].profile.description": "for readers",
    "fleet[].profile.provenance": "who says so",
    "fleet[].profile.compute.processor": "for readers",
    "fleet[].profile.compute.fp32_peak.low": "for orientation; only the highest value bounds what may be claimed",
    "fleet[].profile.compute.fp32_peak.nominal": "likewise",
    "fleet[].profile.compute.measured_steps[].step": "for readers; the signature says which step it is",
}
"""Fields, or whole sections, that by their nature change no round and no event."""

ELSEWHERE = {
    "model<timm>": "tests/models/test_timm.py, where timm is installed",
    "model<transformers>": "tests/models/test_transformers.py, where transformers is installed",
    "model<python>.lora": "tests/models/test_peft.py, where peft is installed",
    "model<torchvision>.lora": "likewise",
    "methods[].server<flower>": "tests/methods/servers/test_flower.py, where flwr is installed",
    "data.partition<flwr>": "tests/data/partitions/test_flwr.py, where flwr-datasets is installed",
    "fleet[].profile.compute.cpu_quota": "real training only: tests/emulation/test_quotas.py",
}
"""Sections that are tried by other tests."""


def _below(field: str, section: str) -> bool:
    return field == section or field.startswith((f"{section}.", f"{section}["))


@pytest.mark.parametrize("probe", PROBES, ids=[probe.field for probe in PROBES])
def test_the_field_changes_what_happens_as_it_says(probe: Probe) -> None:
    before, after = probe.observe(probe.base), probe.observe({**probe.base, **probe.change})
    assert before != after, "nothing changed"
    assert probe.expected(before, after), "not as its description says"


def test_every_field_of_the_schema_is_proven_or_has_a_reason_not_to_be() -> None:
    known, proven = fields(), {probe.field for probe in PROBES}
    excused = {field for field in known if any(_below(field, section) for section in (*NOTHING_FOLLOWS, *ELSEWHERE))}
    assert sorted(known - proven - excused) == [], "fields that need a probe"
    assert sorted(proven - known) == [], "probes of fields that are no more"
    assert sorted(proven & excused) == [], "proven, and yet excused"
    assert [each for each in NOTHING_FOLLOWS if not any(_below(field, each) for field in known)] == []

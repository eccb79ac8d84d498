"""Every field of a scenario changes what happens, in the direction that its description states.

The tables in this folder hold a probe for each field: a small scenario, another value, and what must follow. A new
field needs one, or a reason below why it can change nothing.
"""

from __future__ import annotations

import re

import pytest

from . import afterwards, codecs, data_and_model, fleet, limits_and_protocol, methods, network_and_cost
from .observation import trained
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
    "sweep.optuna": "settings that a search tries, no run's rounds (tests/sweep/test_search.py)",
    "sweep.ranges": "likewise",
    "fleet[].profile.name": "what the device is called",
    "fleet[].profile.kind": "what sort of device it is, for readers",
    "fleet[].profile.description": "for readers",
    "fleet[].profile.stack": "for readers",
    "fleet[].profile.provenance": "who says so",
    "fleet[].profile.compute.processor": "for readers",
    "fleet[].profile.compute.fp32_peak.low": "for orientation; only the highest value bounds what may be claimed",
    "fleet[].profile.compute.fp32_peak.nominal": "likewise",
    "fleet[].profile.compute.measured_steps[].step": "for readers; the signature says which step it is",
}
"""Fields, or whole sections, that by their nature change no round and no event."""

ELSEWHERE = {
    "data.partition<sizes>.owners": "tests/data/partitions/test_iid_and_quantity.py",
    "fleet[].profile.modes": "tests/fleet/test_assignment.py",
    "fleet[].profile.compute.measured_steps[].training_flops": "tests/profiling/test_step_table.py",
    "fleet[].profile.compute.measured_steps[].bytes_touched": "likewise",
    "fleet[].profile.compute.measured_steps[].launches": "likewise",
    "training.local.optimizer": "tests/methods/test_optimizers.py",
    "training.local.no_decay": "likewise",
    "methods[].local.optimizer": "likewise",
    "methods[].local.no_decay": "likewise",
    "model<timm>": "tests/models/test_small_models.py, where timm is installed",
    "model<transformers>": "tests/models/test_transformers.py, where transformers is installed",
    "model<python>.lora": "tests/models/test_peft.py, where peft is installed",
    "model<torchvision>.lora": "likewise",
    "model<python>.checkpointing": "tests/models/test_transformers.py, where transformers is installed",
    "model<torchvision>.checkpointing": "refused, as torchvision has no switch",
    "methods[].python": "tests/experiment/test_python_files.py",
    "methods[].server<flower>": "tests/methods/test_flower.py, where flwr is installed",
    **{
        f"{section}<python>": "tests/test_plug_ins.py"
        for section in ("network.links.*.down", "network.links.*.up", "training.selection", "training.bandwidth")
    },
    "methods[].scheduler<python>": "likewise",
    "protocol<python>": "likewise",
    "figures[]": "tests/record/test_figures.py",
    "budgets.*": "likewise",
    "data<arrays>.test_client": "tests/data/sets/test_arrays.py",
    "data.partition<flwr>": "tests/data/partitions/test_flwr.py, where flwr-datasets is installed",
    "fleet[].profile.compute.group_overhead": "grouped convolutions: tests/fleet/test_roofline.py",
    **{f"methods[]<{name}>": "tests/methods, by formula" for name in methods.DERIVED},
    "failures[].malicious": "tests/data/test_attackers.py",
    **{
        f"methods[].server<{option}": "tests/methods/test_robust.py"
        for option in ("krum>.malicious", "krum>.select", "norm_bound>.bound", "trimmed_mean>.share")
    },
    "fleet[].profile.compute.cpu_quota": "real training only: tests/emulation/test_trainers.py",
}
"""Sections that are tried by other tests."""


ALIKE = [
    (r"(.*\.(server_)?lr)<\w+>(\.\w+)?$", r"\1"),  # rates that change: tests/methods/test_optimizers.py
    (r"network\.links\.\*\.up", r"network.links.*.down"),
    (r"methods\[\]\.(local|codec)", r"training.\1"),
    (r"training\.codec\.down", r"training.codec.up"),
    (r"protocol<hierarchical>", r"protocol<synchronous>"),
    (r"training\.selection<eafl>", r"training.selection<oort>"),
    (r"methods\[\]\.server<mean>", r"methods[]<fedavg>"),
    (r"methods\[\]\.server<(\w+)>(?!\.kind)", r"methods[]<\1>"),
    (r"methods\[\]<(?!fedavg>|timelyfl>)[\w+]+>\.server_lr$", r"methods[]<fedavg>.server_lr"),
    (r"methods\[\]<fedadc\+>(?!\.method)", r"methods[]<fedadc>"),
    (r"methods\[\]<(fedadagrad|fedyogi)>(?!\.method)", r"methods[]<fedadam>"),
    (r"methods\[\]<(fedrolex|fjord)>\.(levels|deadline)", r"methods[]<heterofl>.\2"),
    (r"data<(cifar100|digits|fashion_mnist|mnist|tiny_imagenet)>\.name", r"data<cifar10>.name"),
    (r"model<(mobilenet_v2|shufflenet|squeezenet|vgg9)>\.name", r"model<fedadc_cnn>.name"),
    (r"model<(?!cnn>)\w+>\.(norm|groups|init)$", r"model<resnet56>.\1"),
    (r"(fleet\[\]\.profile\.(compute|memory|power)\..*)\.(low|nominal|high)$",
     r"fleet[].profile.compute.fp32_achievable.\3"),
]  # fmt: skip
"""Fields that the same class reads in two places: a probe of the right one stands for the left one."""


TRAINED_PLAINLY = {
    "data.partition<shards>.s",
    "model.buffers",
    "training.local.lr",
    "training.codec.up<quantise>.bits",
    "methods[]<fedprox>.mu",
    "methods[]<fedadam>.tau",
    "protocol<asynchronous>.mixing",
    "evaluation.every",
    "targets[]",
}
"""Probes that train and are not dear, one of each kind of section."""

DEAR = ("model", "data")
"""Sections whose probes build another model or read other data; of the others every fifth without training is plain."""


def _below(field: str, section: str) -> bool:
    return field == section or field.startswith((f"{section}.", f"{section}[", f"{section}<"))


def _proof(field: str) -> str:
    """The field whose probe stands for this one."""
    for pattern, other in ALIKE:
        field = re.sub(f"^{pattern}", other, field)
    return field


def _cases() -> list[object]:
    """The probes, of which most are of the fuller suite."""
    counts: dict[str, int] = {}
    cases = []
    for probe in PROBES:
        section = re.split(r"[.\[<]", probe.field)[0]
        counts[section] = counts.get(section, 0) + (probe.observe is not trained)
        plain = (
            probe.field in TRAINED_PLAINLY
            if probe.observe is trained
            else counts[section] % 5 == 1 and section not in DEAR
        )
        cases.append(pytest.param(probe, id=probe.field, marks=[] if plain else [pytest.mark.full]))
    return cases


@pytest.mark.parametrize("probe", _cases())
def test_the_field_changes_what_happens_as_it_says(probe: Probe) -> None:
    before, after = probe.observe(probe.base), probe.observe({**probe.base, **probe.change})
    assert before != after, "nothing changed"
    assert probe.expected(before, after), "not as its description says"


def test_every_field_of_the_schema_is_proven_or_has_a_reason_not_to_be() -> None:
    known, proven = fields(), {probe.field for probe in PROBES}
    # A part whose option matters is used.
    parts = {field[: found.end()] for field in proven for found in re.finditer(r">(?=\.)", field)}
    used = {field for field in known if re.sub(r"\.(kind|name|method)$", "", field) in parts}
    excused = {field for field in known if any(_below(field, section) for section in (*NOTHING_FOLLOWS, *ELSEWHERE))}
    missing = known - proven - used - excused
    assert sorted(field for field in missing if _proof(field) not in proven | used) == [], "need a probe"
    assert sorted(proven - known) == [], "probes of fields that are no more"
    assert sorted(proven & excused) == [], "proven, and yet excused"
    assert [each for each in NOTHING_FOLLOWS if not any(_below(field, each) for field in known)] == []

"""Every field of a scenario changes what happens, in the direction that its description states.

The tables in this folder hold a probe of each field that no other test works out: a small scenario, another value,
and what must follow. A new field needs one, or a place in a list below: why it can change nothing, or who tries it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import data_and_model, fleet, limits_and_protocol, methods, network_and_cost
from .observation import trained
from .probe import Probe
from .walk import fields

PROBES: list[Probe] = [
    probe for table in (data_and_model, limits_and_protocol, fleet, network_and_cost, methods) for probe in table.PROBES
]

NOTHING_FOLLOWS = {
    "name": "what the run is called",
    "methods[].as": "what the method is called",
    "data<huggingface>": "needs a library of an extra (tests/data/sets/test_huggingface.py)",
    "published[]": "numbers of a paper, which reports show beside those of a run",
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

TRIED_BY = {
    "data/partitions/test_by_file.py": "data.partition<file> data.partition<natural>",
    "data/partitions/test_dirichlet.py": "data.partition<dirichlet>",
    "data/partitions/test_flwr.py": "data.partition<flwr>",
    "data/partitions/test_iid_and_quantity.py": "data.partition<iid> data.partition<quantity> data.partition<sizes>",
    "data/partitions/test_label_level.py": "data.partition<label_level>",
    "data/sets/test_arrays.py": "data<arrays> data.channels data.kind data.test_share",
    "data/sets/test_image_folder.py": "data<image_folder> data.size data.colours",
    "data/sets/test_made_sets.py": "data<scikit_learn> data<vibration>",
    "data/sets/test_parquet.py": "data<parquet>",
    "data/sets/test_python.py": "data<python>",
    "data/sets/test_table.py": "data<table>",
    "data/sets/test_shakespeare.py": "data<shakespeare>.stride",
    "data/test_attackers.py": "failures[].malicious",
    "data/test_batches.py": "data.augment training.local.drop_last training.local.epochs training.local.steps",
    "data/test_feature_skews.py": "data.feature_skew",
    "data/test_federated_data.py": "data.normalise",
    "emulation/test_trainers.py": "fleet[].profile.compute.cpu_quota",
    "experiment/test_paper_seconds.py": "cost<paper>",
    "experiment/test_python_files.py": "methods[].python model<python>.args",
    "fleet/test_assignment.py": "fleet[].profile.modes",
    "fleet/test_availability.py": "fleet[].availability<always> fleet[].availability<trace> "
    "fleet[].availability<diurnal>.share fleet[].availability<diurnal>.peak",
    "fleet/test_battery.py": "fleet[].profile.power.idle fleet[].profile.power.compute",
    "fleet/test_fitting.py": "fleet[].profile.compute.memory_bandwidth fleet[].profile.compute.operator_overhead "
    "fleet[].profile.compute.step_overhead fleet[].profile.compute.operator_rates",
    "fleet/test_roofline.py": "fleet[].sample",
    "fleet/test_slowdown.py": "fleet[].profile.compute.jitter fleet[].profile.compute.background_load "
    "fleet[].profile.compute.thermal.after fleet[].profile.compute.thermal.sustained "
    "fleet[].profile.compute.measured_steps",
    "methods": " ".join(
        f"methods[]<{name}>{option and '.'}{option}"
        for name, options in methods.DERIVED.items()
        for option in options or [""]
    ),
    "methods/test_codecs.py": "training.codec.up<none> training.codec.up<cast>.to training.codec.up<quantise>.scale "
    "training.codec.up<quantise>.rounding training.codec.up<top_k>.fraction",
    "methods/test_optimizers.py": "training.local.optimizer training.local.no_decay",
    "methods/test_robust.py": "methods[].server<krum>.malicious methods[].server<krum>.select "
    "methods[].server<norm_bound>.bound methods[].server<trimmed_mean>.share",
    "methods/test_sgd_rule.py": "training.local.momentum training.local.nesterov training.local.weight_decay "
    "training.local.clip_norm",
    "models/test_block_models.py": "model<resnet56> model<resnet18> model<fedadc_cnn>",
    "models/test_char_transformer.py": "model<char_transformer>",
    "models/test_ordinary_models.py": "model<python>.trainable model<python>.blocks model<torchvision>.trainable "
    "model<torchvision>.blocks",
    "models/test_peft.py": "model<python>.lora model<torchvision>.lora",
    "models/test_pretrained.py": "model.weights.file model.weights.trained model.weights.skip",
    "models/test_small_models.py": "model<timm>",
    "models/test_transformers.py": "model<transformers> model<python>.checkpointing model<torchvision>.checkpointing",
    "network/test_network_specs.py": "network.links.*.down<uniform> network.links.*.down<process>.like "
    "network.links.*.redraw network.links.*.symmetric network.topology<file>",
    "network/test_processes.py": "network.links.*.down<process>.quantiles network.links.*.down<process>.correlation "
    "network.links.*.down<process>.outage_every",
    "network/test_tcp.py": "network.transport.handshake network.transport.keep_alive network.transport.packet_bytes",
    "network/test_trace_tables.py": "network.links.*.down<trace>",
    "network/test_transport.py": "network.transport.acknowledgements",
    "network/test_wireless_sharing.py": "network.topology<cells>.sharing",
    "profiling/test_derived_profile.py": "fleet[].profile.compute.group_overhead",
    "record/test_figures.py": "figures[] budgets.*",
    "scheduling/test_block_schedulers.py": "methods[].scheduler<all> methods[].scheduler<random> "
    "methods[].scheduler<fixed> methods[].scheduler<optimal>",
    "scheduling/test_optimum.py": "training.bandwidth",
    "scheduling/test_published_selection.py": "training.selection<tifl> training.selection<refl> "
    "training.selection<power_of_choice> training.selection<eafl>",
    "scheduling/test_selection.py": "training.selection<coverage> training.selection<deadline> "
    + " ".join(f"training.selection<oort>.{name}" for name in ("exploration", "least_exploration", "penalty", "cutoff"))
    + " training.selection<oort>.percentile training.selection<oort>.pacer_step training.selection<oort>.window",
    "fleet/test_prices.py": "fleet[].prices fleet[].timezone",
    "simulation/test_prices.py": "start prices budgets.grams budgets.euros",
    "simulation/test_asynchronous.py": "protocol<asynchronous>.buffer protocol<asynchronous>.concurrency",
    "simulation/test_cost_models.py": "cost<seconds> training.local.batch training.local.accumulate",
    "simulation/test_downlinks.py": "network.transport.multicast",
    "simulation/test_errors_in_the_world.py": "budgets",
    "simulation/test_failures.py": "failures[] protocol<synchronous>.retries protocol<asynchronous>.retries",
    "simulation/test_peers.py": "protocol<ring_all_reduce> protocol<gossip>",
    "simulation/test_overlap.py": "protocol<asynchronous>.ahead",
    "simulation/test_partial_work.py": "protocol<synchronous>.late protocol<synchronous>.reserve "
    "training.local.common_finish round_overhead",
    "simulation/test_power.py": "fleet[].dropout fleet[].profile.battery fleet[].profile.power.radio.down "
    "fleet[].profile.power.radio.up",
    "simulation/test_synchronous_rounds.py": "protocol<synchronous>.deadline<adaptive> "
    "protocol<synchronous>.over_select",
    "simulation/test_timeouts.py": "network.transport.timeouts",
    "sweep/test_sweep.py": "sweep.grid sweep.random",
    "sweep/test_search.py": "sweep.optuna sweep.ranges",
    "tasks": "task",
    "test_plug_ins.py": "network.links.*.down<python> training.selection<python> methods[].scheduler<python> "
    "protocol<python>",
    "test_privacy.py": "privacy",
    "training/test_method_learner.py": "training.local.lr_decay",
}
"""What tests of a file, or of a folder, work out."""
ELSEWHERE = [section for sections in TRIED_BY.values() for section in sections.split()]


ALIKE = [
    (r"(.*\.(server_)?lr)<\w+>(\.\w+)?$", r"\1"),  # rates that change: tests/methods/test_optimizers.py
    (r"network\.links\.\*\.up", r"network.links.*.down"),
    (r"methods\[\]\.(local|codec)", r"training.\1"),
    (r"training\.codec\.down", r"training.codec.up"),
    (r"protocol<hierarchical>", r"protocol<synchronous>"),
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
    assert sorted(field for field in missing if _proof(field) not in proven | used | excused) == [], "need a probe"
    assert sorted(proven - known) == [], "probes of fields that are no more"
    assert sorted(proven & excused) == [], "proven, and yet excused"
    assert [each for each in (*NOTHING_FOLLOWS, *ELSEWHERE) if not any(_below(field, each) for field in known)] == []
    assert [each for each in TRIED_BY if not (Path(__file__).parents[2] / each).exists()] == []

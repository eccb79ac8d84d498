"""Advice on the precision of a run on this processor, in a sentence; the run itself is never changed."""

from edgefl.cost.law import CostModel
from edgefl.cost.measure import StepCost
from edgefl.experiment.wiring import skeleton
from edgefl.methods.build import build_method
from edgefl.scenario import Scenario
from edgefl.training.engine_spec import choose_device, has_bfloat16_matrix_units, multiplies_bfloat16

MEASURED_GAIN = 2.3
"""Images per second in bfloat16 over float32: ResNet-18 with group norm, batch 50, engine ``parallel`` on two cores
with AMX."""

_FASTER_PRODUCTS = 4.6
"""The same for large products of matrices alone, measured there."""
_FLOPS_PER_SECOND, _BYTES_PER_SECOND = 170e9, 5.4e9
"""The rates of one of these cores in products in float32, and in all other operators, with which the step of ResNet-18
takes the measured time in both precisions."""

LEAST_GAIN = 2.0
"""A smaller estimate is not mentioned: it was made from one network."""


def estimated_gain(step: StepCost) -> float:
    """Seconds of a local step in float32 over those in bfloat16 on a core with matrix units, by its operators.

    Products of matrices and convolutions have rates by FLOPs; all other operators, also convolutions of one channel,
    move bytes and take the same time in both precisions.
    """
    products = sum(each.flops * each.count for each in step.operators if _is_product(each.kind)) / _FLOPS_PER_SECOND
    rest = sum(each.bytes * each.count for each in step.operators if not _is_product(each.kind)) / _BYTES_PER_SECOND
    return (products + rest) / (products / _FASTER_PRODUCTS + rest)


def _is_product(kind: str) -> bool:
    if kind.startswith("convolution-"):
        return not kind.startswith(("convolution-depthwise", "convolution-grouped"))
    return kind.endswith("-product") or kind.startswith(("attention-", "recurrent-"))


def precision_advice(scenario: Scenario, device: str) -> str | None:
    """The advice about bfloat16 on a CPU, counted on a step of FedAvg; ``None`` if there is none."""
    if choose_device(device).type != "cpu":
        return None
    if scenario.training.engine.precision == "bfloat16":
        if multiplies_bfloat16():
            return None
        return (
            "training.engine.precision is bfloat16, and this processor has no instructions for it: training takes "
            "several times as long as in float32"
        )
    if not has_bfloat16_matrix_units():
        return None
    model, local = skeleton(scenario, numbers=False), scenario.training.local
    step = CostModel(model).cost(build_method("fedavg", local), model.depth, local.batch)
    gain = estimated_gain(step)
    if gain < LEAST_GAIN:
        return None
    return (
        f"this processor has matrix units for bfloat16: with --set training.engine.precision=bfloat16 a local step "
        f"would be about {gain:.1f} times as fast, by its operators (ResNet-18, measured: {MEASURED_GAIN}); "
        "results then differ by rounding"
    )

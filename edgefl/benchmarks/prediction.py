"""The predicted time of a local step from its operators, and explanations of differences from the measured time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import get_args

from edgefl.cost.measure import Operator, Trace, trace
from edgefl.errors import UserError
from edgefl.fleet import load_profile
from edgefl.fleet.roofline import step_seconds
from edgefl.methods.local_step import Phase
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.profiling.held_out import prepared_step
from edgefl.profiling.measure_device import main
from edgefl.profiling.measure_device.timing import clock_for, random_numbers
from edgefl.profiling.measured_profile import fit_of
from edgefl.profiling.measurement import measurement_of

Predict = Callable[[Sequence[Operator]], float]
"""Seconds of a local step that executes these operators."""

MEASURING_SECONDS = 60.0
"""Seconds for measuring this machine if no profile is given."""

TOLERANCE = 0.25
"""A larger relative difference from the prediction is explained."""

_PHASES: tuple[Phase, ...] = get_args(Phase)
_NAMES = {"forward": "forward pass", "backward": "backward pass", "update": "update"}
_STEPS = 30


def by_profile(name_or_path: str) -> Predict:
    """From a device profile, for example a file of ``edgefl profile measure`` for this machine.

    Raises:
        UserError: unknown profile.
    """
    profile = load_profile(name_or_path)
    return lambda operators: step_seconds(profile, operators)


def by_measuring(seconds: float, say: Callable[[str], None]) -> Predict | None:
    """From a measurement of this machine with one thread, for about ``seconds``. ``None`` if that was too short."""
    found = main.measurement(seconds, 1, say)
    try:
        return fit_of(measurement_of(found)).rates.seconds
    except UserError as error:
        say(f"no prediction: this machine is too busy for a measurement in {seconds:g} s: {error.message}")
        return None


def reason(method: Method, reference: Method, model: BlockModel, batch: int, predict: Predict) -> str:
    """Which part of a method's local step differs from its predicted time, relative to the reference.

    Each step is timed alone, by parts. The result names the part with the largest difference and the method's
    additional operators there.
    """
    timed, planned = _phases(method, model, batch), _planned(method, model, batch)
    before, plan_before = _phases(reference, model, batch), _planned(reference, model, batch)
    fixed = predict(())
    expected = sum(predict(planned[phase]) - fixed for phase in _PHASES) + fixed
    expected_before = sum(predict(plan_before[phase]) - fixed for phase in _PHASES) + fixed
    alone = sum(timed.values()) / sum(before.values())
    if abs(alone / (expected / expected_before) - 1) <= TOLERANCE:
        return (
            f"a local step alone takes {alone:.2f} x {reference.label}'s, predicted {expected / expected_before:.2f}; "
            "the rest of the difference is outside the step: client states, uploads, the server"
        )
    extra = {phase: timed[phase] - before[phase] for phase in _PHASES}
    planned_extra = {phase: predict(planned[phase]) - predict(plan_before[phase]) for phase in _PHASES}
    worst = max(_PHASES, key=lambda phase: abs(extra[phase] - planned_extra[phase]))
    kinds: defaultdict[str, float] = defaultdict(float)
    for sign, operators in ((1, planned[worst]), (-1, plan_before[worst])):
        for each in operators:
            kinds[each.kind or each.name] += sign * (predict([each]) - fixed)
    most = max(kinds, key=lambda kind: kinds[kind], default="")
    added = f", mostly {most}" if most and kinds[most] > 0 else ""
    return (
        f"its {_NAMES[worst]} takes {1e3 * extra[worst]:+.2f} ms compared with {reference.label}'s, "
        f"predicted {1e3 * planned_extra[worst]:+.2f} ms{added}"
    )


def _phases(method: Method, model: BlockModel, batch: int) -> dict[Phase, float]:
    """Median seconds of each part of a local step, on one core."""
    clock = clock_for(1)
    step = prepared_step(method, method.objective.adapt(model), batch, random_numbers())
    times: dict[Phase, list[float]] = {phase: [] for phase in _PHASES}
    for number in range(_STEPS):
        begun: dict[Phase, float] = {}
        step(lambda phase, begun=begun: begun.setdefault(phase, clock()))  # type: ignore[misc]
        ends = [*list(begun.values())[1:], clock()]
        if number:
            for (phase, start), end in zip(begun.items(), ends, strict=True):
                times[phase].append(end - start)
    return {phase: median(values) for phase, values in times.items()}


def _planned(method: Method, model: BlockModel, batch: int) -> dict[Phase, Sequence[Operator]]:
    """The operators of each part of a local step."""
    adapted = method.objective.adapt(model)
    whole = trace(adapted, method, adapted.depth, batch)
    return {
        phase: Trace(batch, tuple(record for record in whole.records if record.phase == phase), 0).cost().operators
        for phase in _PHASES
    }

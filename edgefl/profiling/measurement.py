"""The measuring script: pack it, run it here, count what its cases execute, check its fit, and read its file."""

import datetime
import os
import tempfile
import time
import zipapp
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from edgefl.cost.measure import Operator, measure, merged
from edgefl.cost.recorder import Recorder
from edgefl.cpu_quota import limited, period_seconds
from edgefl.errors import UserError
from edgefl.files import read_bytes, writing_output
from edgefl.fleet.fitting import Step
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.fake import fake
from edgefl.models.registry import MODELS, build_model
from edgefl.options import Options
from edgefl.profiling.measure_device import main
from edgefl.profiling.measure_device.steps import STEP
from edgefl.profiling.measure_device.timing import Case, Maker, Run, clock_for
from edgefl.randomness import generator
from edgefl.validation import validated

PACKAGE = "measure_device"

PERIODS = 4
"""Least periods of the quota in a timed group of runs."""


def write_archive(output: Path) -> None:
    """Pack the package with the standard library's ``zipapp``; ``python OUTPUT`` then runs it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / PACKAGE
        package.mkdir()
        for module in (files(__package__) / PACKAGE).iterdir():
            if module.name.endswith(".py"):
                (package / module.name).write_bytes(module.read_bytes())
        with writing_output(output) as file:
            zipapp.create_archive(folder, file, interpreter="/usr/bin/env python3", main=f"{PACKAGE}:run")
            mode = os.fstat(file.fileno()).st_mode
            os.fchmod(file.fileno(), mode | (mode & 0o444) >> 2)  # users who may read it may execute it


def operators_of(case: Case) -> tuple[Operator, ...]:
    """The operators of one run of a case, as they are counted for the steps of methods; identical ones are merged.

    >>> from edgefl.profiling.measure_device.main import cases
    >>> [(each.name, each.flops, each.count) for each in operators_of(cases()["linear 64 on 8"])]
    [('mm', 65536, 3)]
    """
    with Recorder():
        run = case.prepare(fake)
    with Recorder() as recorder:
        run()
    return merged(recorder.records)


SHAPE, CLASSES = (3, 32, 32), 10


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A training step of edgefl's: a model, a method and a batch size."""

    model: str
    method: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.method}, batch {self.batch}"

    def operators(self) -> tuple[Operator, ...]:
        """According to the cost model."""
        method, model = self._parts()
        return measure(model, method, model.depth, self.batch).operators

    def case(self) -> Case:
        return Case(self._prepare, megabytes=500)

    def _parts(self) -> tuple[Method, BlockModel]:
        method = build_method(self.method, LocalOptions())
        return method, method.objective.adapt(build_model(MODELS[self.model](), SHAPE, CLASSES))

    def _prepare(self, numbers: Maker) -> Run:
        method, model = self._parts()
        layout, objective, rule = model.layout, method.objective, method.rule
        parameters, buffers = numbers(layout.parameter_count), torch.ones(layout.buffer_count)
        vectors = {name: numbers(layout.parameter_count) for name in sorted(objective.vectors | rule.vectors)}
        context = Context(
            model=model,
            frozen={
                name: layout.frozen(vectors.get(name, parameters).clone(), buffers.clone())
                for name in sorted(objective.frozen)
            },
            vectors={name: vectors[name] for name in sorted(objective.vectors)},
            client={
                name: torch.ones(model.classes if name == "label_counts" else ()) for name in sorted(objective.client)
            },
            alpha=model.depth,
            draws=objective.draw(generator(0, "cost"), self.batch),
        )
        images = Batch(numbers(self.batch, *model.sample_shape), torch.arange(self.batch) % model.classes)
        memory = rule.begin(parameters, {name: vectors[name] for name in sorted(rule.vectors)}, method.local, 1)
        # A learning rate of 0 keeps the numbers constant: values that grow or vanish would change the speed.
        return lambda: local_step(objective, rule, parameters, buffers, images, context, memory, method.local, 0.0)


HELD_OUT = (
    HeldOut("fedadc_cnn", "moon", 16),
    HeldOut("fedadc_cnn", "fedmlb", 8),
    HeldOut("vgg9", "ntd", 4),
    HeldOut("vgg9", "feddyn", 16),
    HeldOut("resnet56", "moon", 4),
    HeldOut("resnet56", "ntd", 16),
    HeldOut("shufflenet", "feddyn", 8),
    HeldOut("shufflenet", "ntd", 32),
)
"""They validate a profile: the measuring script's cases contain none of these model families and methods."""


class Machine(Options):
    """The device as its system describes it."""

    processor: str
    system: str
    python: str
    torch: str
    threads: int = Field(ge=1)
    processors: int = Field(default=0, ge=0, description="0: not stated.")
    memory_bytes: int = Field(ge=0, description="Main memory; 0 where the system does not say.")
    peak_flops_per_second: float = Field(gt=0, allow_inf_nan=False)


class CaseTiming(Options):
    """The timing of one case, as :class:`~edgefl.profiling.measure_device.timing.Timing`."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    spread: float = Field(ge=1, allow_inf_nan=False)
    repetitions: int = Field(ge=1)


class Measurement(Options):
    """A file of the measuring script: timings by the case's name, and why cases were left out."""

    format: str
    version: int
    machine: Machine
    date: datetime.date
    cases: dict[str, CaseTiming]
    left_out: dict[str, str] = Field(default_factory=dict)

    def observations(self) -> tuple[list[Step], list[Step]]:
        """Whole steps, and chains of layers."""
        known = main.cases()
        runs: dict[str, Step] = {name: (operators_of(known[name]), each.seconds) for name, each in self.cases.items()}
        steps = [run for name, run in runs.items() if name.startswith(STEP)]
        return steps, [run for name, run in runs.items() if not name.startswith(STEP)]


def is_measurement(file: Path) -> bool:
    """True if the file is one of the measuring script (JSON) rather than a table."""
    return read_bytes(file).lstrip().startswith(b"{") or file.suffix.lower() == ".json"


def measurement_of(data: Any, *, file: str | None = None) -> Measurement:
    """A measurement from the plain data of a file of the measuring script."""
    if not isinstance(data, dict) or data.get("format") != main.FORMAT:
        message = "expected a file of the measuring script; `edgefl profile script` gives the script"
        raise UserError(message, file=file, field="format")
    if data.get("version") != main.VERSION:
        message = (
            f"expected a measurement of version {main.VERSION}, found {data.get('version')}; run the script that "
            "`edgefl profile script` gives on the device again"
        )
        raise UserError(message, file=file, field="version")
    found = validated(Measurement, data, file=file)
    steps = sum(name.startswith(STEP) for name in found.cases)
    chains = len(found.cases) - steps
    if steps < main.LEAST_STEPS or chains < main.LEAST_CHAINS:
        message = (
            f"expected at least {main.LEAST_STEPS} whole steps and {main.LEAST_CHAINS} chains of layers, found {steps} "
            f"and {chains}; run the script for longer (--seconds), or with more memory free"
        )
        raise UserError(message, file=file, field="cases")
    return found


def measurement_under_quota(
    processors: float, seconds: float, say: Callable[[str], None], wanted: Mapping[str, Case]
) -> dict[str, Any]:
    """The measuring script's result for the wanted cases, on one thread under a quota in processors.

    A step shorter than the quota's period runs at full speed or waits for the rest of the period, so its duration by
    the clock says little. Its time on the processor is exact; it is multiplied by the real seconds of the whole
    measurement for one second on the processor. Runs are timed in groups that last several periods: after each wait the
    caches are cold, which a single short run may not meet.
    """
    if clock_for(1) is not time.process_time:
        raise UserError("a measurement under a quota needs an exact clock of the processor's time", field="--cpu-quota")
    with limited(processors):
        began, used = time.perf_counter(), time.process_time()
        found = main.measurement(seconds, 1, say, dict(wanted), PERIODS * processors * period_seconds(processors))
        stretch = (time.perf_counter() - began) / (time.process_time() - used)
    say(f"{stretch:.4g} seconds for one second on the processor; the quota alone gives {1 / processors:.4g}.")
    for timing in found["cases"].values():
        timing["seconds"] *= stretch
    found["machine"]["peak_flops_per_second"] /= stretch
    return found

"""The parts of the campaign: each is one command for a limited time, and what it found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefl.experiment import is_interrupted

Found = dict[str, Any]
"""What a part found: ``state`` is ``done``, ``unfinished`` or ``failed``; see ``gpu_campaign_tables.as_markdown``."""

Over = Callable[[], bool]
"""Whether the time of a part is over."""

FLOAT32 = ("--precision", "float32")
EDGEFL = (sys.executable, "-m", "edgefl")
BENCHMARK = str(Path(__file__).parents[1] / "benchmarks" / "training.py")
GRACE_SECONDS = 30
"""After an interruption, a command gets this time to store what it has; then it is killed."""


@dataclass(frozen=True)
class Place:
    """Where the campaign runs.

    Attributes:
        folder: receives all results.
        device: ``cuda``, or ``cpu`` in a rehearsal.
        tiny: whether every part has its smallest size, whose figures are not meaningful.
        over: see :data:`Over`; by default nothing is interrupted.
        changes: changes of the papers' scenarios, as for ``--set``.
    """

    folder: Path
    device: str
    tiny: bool
    over: Over = lambda: False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """A command that ended, or was interrupted when its time was over."""

    code: int
    interrupted: bool
    output: str
    errors: str

    @property
    def reason(self) -> str:
        """The last line that it printed."""
        lines = [line for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self.code}"


def execute(command: Sequence[str], place: Place, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a command; when the time is over, interrupt it as Ctrl-C does, and kill it if it does not end then."""
    log = place.folder / "log"
    log.mkdir(parents=True, exist_ok=True)
    output, errors = log / "output", log / "errors"
    interrupted = False
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(environment or {})})
        try:
            while process.poll() is None:
                if place.over():
                    interrupted = True
                    process.send_signal(signal.SIGINT)
                    process.wait(GRACE_SECONDS)
                time.sleep(0.1)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
    return Ended(process.returncode, interrupted, output.read_text(), errors.read_text())


def too_long(ended: Ended) -> Found:
    """What is known of a command that ended too early."""
    reason = "not finished in the time of one part" if ended.interrupted else ended.reason
    return {"state": "failed", "reason": reason}


@dataclass(frozen=True)
class Agreement:
    """The tests of this folder: the device's numbers against the CPU's."""

    name: str = "agreement"
    aim: str = "all agree"

    def command(self, place: Place) -> list[str]:
        """Run the tests; the tiny form selects a few."""
        tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_cuda_*.py"))]
        few = ["-k", "codec or (fedavg and cnn) or side_by_side and moon"] if place.tiny else []
        return [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *few, *tests]

    def run(self, place: Place) -> Found:
        """Count the tests that pass."""
        ended = execute(self.command(place), place, {"EDGEFL_GPU_TESTS_ON": place.device})
        if ended.interrupted:
            return too_long(ended)
        failed = [line.split(" - ")[0] for line in ended.output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if ended.code:
            return {"state": "failed", "reason": ended.reason, "tests": failed}
        return {"state": "done", "figure": ended.reason.strip("= ")}


@dataclass(frozen=True)
class Bench:
    """One case of ``tests/benchmarks/training.py``, held to an aim.

    Attributes:
        name: the name of the part.
        case: the case.
        column: the figure of the benchmark that the aim is about.
        limit: the aim.
        unit: follows the figure in the table.
        lowest: whether small figures are good.
    """

    name: str
    case: str
    column: str
    limit: float
    unit: str
    lowest: bool = False

    @property
    def aim(self) -> str:
        """The aim in words."""
        return f"{'<' if self.lowest else '≥'} {self.limit:g} {self.unit}"

    def command(self, place: Place) -> list[str]:
        """Measure the case."""
        quick = ["--quick"] if place.tiny else []
        return [sys.executable, BENCHMARK, "--case", self.case, "--device", place.device, "--json", *quick, *FLOAT32]

    def run(self, place: Place) -> Found:
        """The figure of the engine that is best in the aim's column, and all rows."""
        ended = execute(self.command(place), place)
        if ended.interrupted or ended.code:
            return too_long(ended)
        rows = json.loads(ended.output)["cases"][0]["rows"]
        engines = [row for row in rows if row["local_steps_per_second"] is not None]
        choose = min if self.lowest else max
        best = choose(engines, key=lambda row: row[self.column])
        value = best[self.column]
        met = value < self.limit if self.lowest else value >= self.limit
        figure = f"{value:.3g} {self.unit} ({best['name']}, {best['images_per_second']:,.0f} images/s)"
        return {"state": "done", "figure": figure, "met": met, "rows": rows}


TINY = (
    "data={name: synthetic, shape: [3, 32, 32], classes: 10, train: 960, test: 40, clients: 16}",
    "model={name: cnn, width: 2}",
    "training={rounds: 40, cohort: 2, local: {steps: 1, batch: 8, lr: 0.01}}",
    "cost={kind: measured}",
)
"""What makes a paper's scenario small: forty rounds of two clients, so that it can be interrupted and resumed."""


NOTHING = "none of the paper's figures exists after so few rounds"


@dataclass(frozen=True)
class PaperRow:
    """One method of a paper's scenario with one seed, in as many slices as it needs.

    Attributes:
        scenario: the shipped scenario.
        method: the method's label.
        seed: the seed.
    """

    scenario: str
    method: str
    seed: int
    aim: str = field(default="the paper's number", repr=False)

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.scenario.removeprefix('papers/').replace('/', '-')}-{self.method}-seed{self.seed}"

    def folder(self, place: Place) -> Path:
        """The run directory."""
        return place.folder / "runs" / self.name

    def command(self, place: Place) -> list[str]:
        """Begin the run, whatever there is of it already."""
        residual = ("model={name: resnet56, norm: group}",) if "fedalign" in self.scenario else ()
        changes = [*((*TINY, *residual) if place.tiny else ()), *place.changes]
        said = [word for change in changes for word in ("--set", change)]
        chosen = ["--method", self.method, "--seed", str(self.seed), "--device", place.device]
        return [*EDGEFL, "simulate", self.scenario, *chosen, *said, "--out", str(self.folder(place))]

    def run(self, place: Place) -> Found:
        """Train until the time is over, or compare a finished run with the paper."""
        folder = self.folder(place)
        before = self.rounds(place)
        if is_interrupted(folder):
            ended = execute([*EDGEFL, "simulate", "--resume", str(folder)], place)
        elif (folder / "summary.json").is_file():
            ended = Ended(0, interrupted=False, output="", errors="")
        else:
            shutil.rmtree(folder, ignore_errors=True)  # a run that ended before its first file was complete
            ended = execute(self.command(place), place)
        rounds = self.rounds(place)
        if ended.interrupted:
            stuck = "" if rounds > before else "; no checkpoint in this part: give a part more --minutes"
            return {"state": "unfinished", "figure": f"{rounds} rounds are stored{stuck}"}
        if ended.code:
            return {"state": "failed", "reason": ended.reason}
        return self._compared(folder, place)

    def rounds(self, place: Place) -> int:
        """The rounds in the newest checkpoint of an interrupted run."""
        manifests = self.folder(place).rglob("checkpoints/round-*.json")
        return max((int(file.name.split("-")[1]) for file in manifests), default=0)

    def _compared(self, folder: Path, place: Place) -> Found:
        ended = execute([*EDGEFL, "report", str(folder), "--against", "paper", "--json"], place)
        if ended.code:
            return {"state": "failed", "reason": ended.reason}
        report = json.loads(ended.output)
        rows = [row for row in report["rows"] if row["method"] == self.method and row["ours"] is not None]
        texts = [f"{row['metric']} {_number(row['ours'])}, in the paper {_published(row)}" for row in rows]
        return {"state": "done", "figure": "; ".join(texts) or NOTHING, "rows": rows, "notes": report["notes"]}


def _number(value: float) -> str:
    return f"{100 * value:.1f} %" if 0 <= value <= 1 else f"{value:.4g}"


def _published(row: Mapping[str, Any]) -> str:
    return f"rank {row['rank']}" if row["published"] is None else _number(row["published"])


Part = Agreement | Bench | PaperRow


def rows_of(scenario: str, seed: int, *methods: str) -> list[Part]:
    """Rows of one table."""
    return [PaperRow(scenario, method, seed) for method in methods]


PARTS: tuple[Part, ...] = (
    Agreement(),
    Bench("bench-pfl-cifar10", "pfl-cifar10", "seconds_for_all_rounds", 60, "s for all 1,500 rounds", lowest=True),
    Bench("bench-resnet18", "resnet18", "to_centralised_same_batch", 0.9, "of centralised training"),
    *rows_of("papers/fedadc/table1_cifar10_s2_c10", 0, "fedavg", "fedadc", "fedadc+"),
    *rows_of("papers/fedadc/fig1_s2", 0, "slowmo"),
    *rows_of("papers/fedadc/table1_cifar10_s2_c10", 0, "feddyn", "fedprox", "ntd", "fedgkd", "moon", "fedrs"),
    *rows_of("papers/fedadc/table1_cifar100_dir5_c10", 0, "fedavg", "fedadc", "fedadc+"),
    *rows_of("papers/fedbr/fig7_level7", 0, "fedavg", "fedmlb", "fedbr"),
    # With 20 epochs a round, ten rounds to the next checkpoint may take longer than one part.
    *rows_of("papers/fedalign/table3_e10", 1, "fedavg", "fedalign"),
    *rows_of("papers/fedmlb/table1_cifar100_100clients", 0, "fedavg", "fedmlb"),
)
"""All parts, the most valuable first."""

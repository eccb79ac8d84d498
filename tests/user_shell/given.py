"""What a page takes for granted: runs that an earlier page made, the reader's files, what is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import re
import shutil
from pathlib import Path

from edgefl.emulation.machine import in_namespaces
from edgefl.experiment import run
from edgefl.profiling.measure_device import main as measuring
from edgefl.scenario import load_scenario

from ..small_runs import Stop
from .pages import ROOT, Command, blocks
from .session import Session

RUNS = {
    "RUN": "edgefl simulate 5g_100clients --out RUN --method fedavg --method fedadc --method fedalign --method fedbr "
    "--seed 0 --set stop=rounds --set training.rounds=4 --set training.cohort=2",
    "OUT": "edgefl sweep 5g_100clients --out OUT --no-train --method fedavg --seed 0 "
    "--set training.rounds=2 --grid training.cohort=5,10",
    "PAPER": "edgefl simulate papers/fedbr/tables4_5_cifar100 --out PAPER --no-train --set training.rounds=20",
}
"""Run directories that pages call by these names."""

CALLED = {"report.md": "runs/main"}
"""What pages call that run."""

SHORT = {"stop": "rounds", "training.rounds": 3, "training.cohort": 2, "seeds": [0]}
"""What is changed in a run that is interrupted."""

TUTORIAL = ("make_data.py", "net.py", "mine.yaml", "street.csv", "here.yaml")
"""The files of docs/tutorial.md; in place of the measured profile a shipped one."""

BOARD = ("step of plain", "step of fire, batch 4", "linear", "1000 numbers", "50000 numbers")
"""Cases that are timed soon, and enough for a profile."""


class Given:
    """What sessions are given, each thing made when a session first needs it.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._session = Session(folder, full=True)

    def to(self, session: Session, wanted: list[Command]) -> None:
        """Put into a session's folder what the commands of a page take for granted."""
        words = {word for command in wanted for call in command.calls for word in call}
        called = {name: name for name in RUNS} | {
            CALLED[page]: "RUN" for page in (wanted[0].page.name,) if page in CALLED
        }
        for folder in words & set(called):
            shutil.copytree(self._run(called[folder]), session.folder / folder)
        texts = {
            "make_tables.py": lambda: _block("data.md", "python", "# make_tables.py"),
            "data.py": lambda: _block("data.md", "python", "# data.py"),
            "estimates.py": lambda: _block("data.md", "python", "# estimates.py"),
            "estimates.yaml": lambda: _block("data.md", "yaml", "name: estimates"),
            "make_sensors.py": lambda: _block("tutorial.md", "python", "# make_sensors.py"),
            "make_data.py": lambda: _block("tutorial.md", "python", "# make_data.py"),
            "net.py": lambda: _block("tutorial.md", "python", "# net.py"),
            "mine.yaml": lambda: _block("tutorial.md", "yaml", "# mine.yaml"),
            "street.csv": lambda: _block("tutorial.md", "text", "time,rate"),
            "here.yaml": lambda: (ROOT / "device_profiles" / "raspberry-pi-5.yaml").read_text(encoding="utf-8"),
            "flower.yaml": lambda: _block("flower.md", "yaml", "name: flower"),
            "digits-app/pyproject.toml": lambda: _block("flower.md", "toml", "[project]"),
            "digits-app/digits_app.py": lambda: _block("flower.md", "python", "# digits_app.py"),
            "tables.yaml": lambda: _block("data.md", "yaml", "name: tables"),
            "my.yaml": lambda: _block("scenarios.md", "yaml", "name: smallest"),
            "my-board.yaml": lambda: _block("device-profiles.md", "yaml", "name: my-board"),
            "steps.csv": lambda: _block("device-profiles.md", "text", "model,torchvision_name"),
            "client.csv": lambda: _block("calibration.md", "text", "round,download_seconds"),
            "measured.json": _measured,
        }
        if any("data.py:" in word for word in words):
            words.add("data.py")
        if "estimates.yaml" in words:
            words.add("estimates.py")
        if "flower.yaml" in words:
            words.update(("digits-app/pyproject.toml", "digits-app/digits_app.py"))
        if "mine.yaml" in words:
            words.update(TUTORIAL)
        for file in words & set(texts):
            (session.folder / file).parent.mkdir(exist_ok=True)
            (session.folder / file).write_text(texts[file](), encoding="utf-8")

    def _run(self, name: str) -> Path:
        path = self._session.folder / name
        if not path.exists():
            done = self._session.call(Command(ROOT, 0, RUNS[name]))
            assert done.failure is None, done.failure
        return path


def prepare(session: Session, command: Command) -> None:
    """Make true what a command says of its files: a run to resume was interrupted, a file to write is not there yet."""
    for call in command.calls:
        for option, value in itertools.pairwise(call):
            file = session.folder / value
            if option in ("-o", "--out", "--output") and file.exists():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            if option == "--resume":
                shutil.rmtree(file, ignore_errors=True)
                scenario = load_scenario("5g_100clients", SHORT)
                with contextlib.suppress(KeyboardInterrupt):
                    run(scenario, out=file, methods=["fedavg"], listeners=[Stop(1)])


def missing(command: Command, session: Session) -> str | None:
    """Why a command cannot run here; ``None`` where it can."""
    needed = {"--engine ray": "ray", "--tensorboard": "tensorboard", "optuna": "optuna", "flower": "flwr"}
    needed |= {"timm: ": "timm", "transformers: ": "transformers", "lora: ": "peft", "llm_lora": "peft"}
    for pattern, module in needed.items():
        if pattern in command.text and importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    if "emulate" in command.text and in_namespaces() is None:
        return "namespaces cannot be made here"
    for pattern, reason in NEVER.items():
        if re.search(pattern, command.text):
            return reason
    if re.search("fashion_mnist", command.text) and not (Path(session.data or "") / "FashionMNIST").is_dir():
        return "EDGEFL_DATA names no folder with Fashion-MNIST"
    return None


NEVER = {
    "RAY_ADDRESS": "needs a cluster",
    "--compute real": "needs a profile that is measured for minutes; tests/emulation/test_trainers.py measures one",
    r"runs/lte|sweep lte_500phones --grid": "trains ResNet-18 on CIFAR-10, which the page says wants a GPU",
}
"""Documented commands that no session runs."""


def _measured() -> str:
    """What the script writes where it has time for few cases."""
    cases = {name: case for name, case in measuring.cases().items() if any(part in name for part in BOARD)}
    return json.dumps(measuring.measurement(1.0, 1, lambda text: None, cases))


def _block(page: str, language: str, beginning: str) -> str:
    return next(
        block.text
        for block in blocks(ROOT / "docs" / page)
        if block.language == language and block.text.startswith(beginning)
    )

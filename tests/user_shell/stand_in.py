"""A program that stands before another of its name on a session's path: what a page shows is run as it stands there.

``python stand_in.py LENGTH PROGRAM ARGUMENT...``. ``edgefl`` is called with further options that make it end in
seconds (``SHORT``). Programs that would install something, or run these tests again, are left out.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

LEFT_OUT = {
    "pip": "installs packages",
    "python -m pip": "installs packages",
    "python docs/site/build.py": "is what tests/test_site.py runs",
    "python tests/benchmarks/training.py": "is what tests/benchmarks runs",
    "python tests/benchmarks/world.py": "is what tests/benchmarks runs",
    "pytest": "is this",
}

SMALL = ("--set", "training.rounds=2", "--set", "training.cohort=2")

SHORT = (
    ("edgefl simulate", ("--resume", "--add-seeds", "flower.yaml"), ()),
    ("edgefl simulate", ("--seed",), SMALL),
    ("edgefl simulate", (), (*SMALL, "--seed", "0")),
    ("edgefl --traceback simulate", (), (*SMALL, "--seed", "0")),
    ("edgefl emulate", ("--check",), ()),
    ("edgefl emulate", (), ("--rounds", "1", "--no-train", "--dilate", "5", "--set", "training.cohort=2")),
    ("edgefl sweep", ("--seed",), ("--set", "training.rounds=2")),
    ("edgefl sweep", (), ("--set", "training.rounds=2", "--seed", "0", "--method", "fedavg", "--random", "1")),
    ("edgefl plan", ("--for", "--seeds-for"), ()),
    ("edgefl plan", (), ("--rounds", "2")),
    ("edgefl diagnose", (), ("--batches", "1", "--method", "fedavg")),
    ("edgefl profile measure", (), ("--seconds", "60", "--threads", "1")),
    ("python measure_device.pyz", (), ("--seconds", "60", "--threads", "1")),
)
"""What makes a command short: its first words, words of which one must be there, and the options that follow.

The first line that fits counts. A full-size session adds nothing.
"""


def shortened(words: list[str]) -> list[str]:
    """A command with the options that make it short."""
    text = " ".join(words)
    for beginning, needed, options in SHORT:
        if f"{text} ".startswith(f"{beginning} ") and (not needed or set(needed) & set(words)):
            return [*words, *options]
    return words


def main(length: str, words: list[str]) -> int:
    """Run a command; where it is a program's own process, this does not return."""
    left_out = next((why for start, why in LEFT_OUT.items() if f"{' '.join(words)} ".startswith(f"{start} ")), None)
    if left_out is not None:
        print(f"left out: {' '.join(words)}: {left_out}")
        return 0
    if length == "short":
        words = shortened(words)
    program = shutil.which(words[0], path=str(Path(sys.executable).parent))
    assert program is not None, f"there is no {words[0]} beside {sys.executable}; pip install -e '.[test]' makes it"
    os.execv(program, [program, *words[1:]])
    raise AssertionError("unreachable: the program stands in this process's place")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

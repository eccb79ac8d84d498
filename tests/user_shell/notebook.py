"""A process as a notebook's: it has multiplied large matrices, and cells run in a second thread of it.

``python notebook.py FILE``: runs the blocks of Python that the file holds (a JSON list), one after another in one
namespace. Blocks with prompts must print what they say.
"""

from __future__ import annotations

import ast
import doctest
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ABSENT = ("pandas",)
"""Packages that a page uses where the reader has them."""


def use_threads() -> None:
    """Leave behind what PyTorch leaves in a process that has computed something: a pool of threads, asleep."""
    import torch

    large = torch.ones(1500, 1500)
    for _ in range(3):
        large = large @ large / 1500
    assert large.sum().isfinite()


def in_a_second_thread(call: Callable[[], Any]) -> Any:
    """What a call returns that is made in a thread of its own, which has threads of its own asleep, too."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            use_threads()
            results.append(call())
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def run(blocks: list[str], *, short: bool = True) -> None:
    """Run a page's blocks, each in a thread of its own."""
    if short:
        _shorten()
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        cell = _examples if block.lstrip().startswith(">>>") else _statements
        in_a_second_thread(lambda cell=cell, block=block: cell(block, namespace))


def _shorten() -> None:
    """Scenarios that a page loads without prompts have two rounds of two clients, and one seed."""
    import edgefl

    load = edgefl.load_scenario
    edgefl.load_scenario = lambda scenario, overrides=(): load(
        scenario, {**dict(overrides), "training.rounds": 2, "training.cohort": 2, "seeds": [0]}
    )


def _statements(block: str, namespace: dict[str, Any]) -> None:
    for statement in ast.parse(block).body:
        try:
            exec(compile(ast.Module([statement], []), "page", "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in ABSENT:
                raise


def _examples(block: str, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block, namespace, "page", "page", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    namespace.update(test.globs)
    if said:
        raise AssertionError("".join(said))


if __name__ == "__main__":
    use_threads()
    run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

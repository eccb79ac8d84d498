"""The packages of edgefl: no circular imports, no package that outgrows the others, a layer for each."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import grimp
import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
EDGEFL = ROOT / "edgefl"
LARGEST = 1 / 8
"""The largest part of all lines that one package may have."""


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("edgefl", cache_dir=None)  # with imports for types alone


def test_no_files_import_each_other_in_a_circle(imports):
    arrows = nx.DiGraph(
        (module, imported)
        for module in imports.modules
        for imported in imports.find_modules_directly_imported_by(module)
    )
    assert [sorted(circle) for circle in nx.strongly_connected_components(arrows) if len(circle) > 1] == []


def test_every_package_and_module_has_a_layer(imports):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = set(chain.from_iterable(layer.replace(":", " ").replace("\\", " ").split() for layer in layers))
    assert named == imports.find_children("edgefl")


def test_no_package_has_more_than_an_eighth_of_all_lines():
    lines = {path: len(path.read_text().splitlines()) for path in EDGEFL.rglob("*.py")}
    total = sum(lines.values())
    for package in [path for path in EDGEFL.iterdir() if (path / "__init__.py").exists()]:
        own = sum(count for path, count in lines.items() if path.is_relative_to(package))
        assert own <= LARGEST * total, f"{package.name} has {own} of {total} lines"

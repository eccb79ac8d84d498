"""docs/scenarios.md: its examples are legal, and no key is missing."""

import re
from pathlib import Path
from typing import get_args

import pytest

from edgefl.data.feature_skews import AnyFeatureSkew
from edgefl.data.partitions import AnyPartition
from edgefl.data.spec import DataSpec
from edgefl.fleet import FleetGroup
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.network import specs as network
from edgefl.scenario import Scenario, load_scenario, resolve
from edgefl.scenario.loading import check
from edgefl.scenario.sections import EvaluationSpec, Published, SweepSpec, TrainingSpec
from edgefl.simulation import protocol_specs as protocols
from edgefl.simulation.cost_specs import SecondsCost
from edgefl.simulation.limits import BudgetSpec
from edgefl.simulation.protocol_specs import HingeStaleness, PolynomialStaleness
from edgefl.training.kept_models import EnsembleSpec
from edgefl.training.personalisation.calibration import CalibrationSpec
from edgefl.units import UNITS
from edgefl.yaml_file import parse_yaml

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

DESCRIBED = [
    Scenario,
    DataSpec,
    TrainingSpec,
    LocalOptions,
    EvaluationSpec,
    CalibrationSpec,
    EnsembleSpec,
    protocols.SynchronousSpec,
    protocols.AsynchronousSpec,
    protocols.HierarchicalSpec,
    SecondsCost,
    PolynomialStaleness,
    HingeStaleness,
    BudgetSpec,
    SweepSpec,
    Published,
    FleetGroup,
    network.NetworkSpec,
    network.LinkSpec,
    network.TransportSpec,
    network.StarTopology,
    network.CellsTopology,
    network.FileTopology,
    network.ConstantCapacity,
    network.UniformCapacity,
    network.TraceCapacity,
    network.GeneratedCapacity,
    *get_args(get_args(AnyPartition)[0]),
    *get_args(get_args(AnyFeatureSkew)[0]),
]


@pytest.fixture(scope="module")
def shipped():
    return resolve(load_scenario("5g_100clients"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split(":")[0])
def test_every_example_is_legal_in_the_shipped_scenario(shipped, example):
    said = parse_yaml(example)
    data = said if "name" in said else {**shipped, **said}
    assert check(data)


def test_every_key_is_on_the_page():
    keys = {(model.__name__, key) for model in DESCRIBED for key in model.model_fields}
    assert [each for each in sorted(keys) if not re.search(rf"`[^`\n]*\b{each[1]}\b[^`\n]*`", TEXT)] == []


def test_every_unit_of_a_scenario_that_is_on_the_page_exists():
    table = TEXT.split("| quantity | base | units |")[1].split("\n\n")[0]
    known = {unit for units in UNITS.values() for unit in units}
    assert set(re.findall(r"`([^`]+)`", table)) <= known

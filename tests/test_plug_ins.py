"""Parts of installed packages: the recipes of the docs run, and a broken part is named before anything is trained."""

import json
import re
import runpy
import sys
import tomllib
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from edgefl.cli import main
from edgefl.data.spec import DATA_SETS
from edgefl.errors import BrokenPlugIn, UserError
from edgefl.experiment import run
from edgefl.fleet import library
from edgefl.methods import build
from edgefl.methods.recipe import METHODS
from edgefl.models.registry import MODELS
from edgefl.randomness import generator
from edgefl.record.figures import Quantity
from edgefl.registry import PlugIns, object_of
from edgefl.scenario import load_scenario, sections
from edgefl.scheduling.selection.base import SELECTORS

DOCS = Path(__file__).resolve().parents[1] / "docs"
NETWORK = """
network:
  topology: {kind: star, server: {down: 100 Mbit/s, up: 100 Mbit/s}, latency: 20 ms}
  links: {5g: {down: 20 Mbit/s, up: 20 Mbit/s}}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Writes what ``pip install`` leaves of a package: its module, and metadata with its entry points."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)

    def write(name, code, entry_points):
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        metadata = folder / f"{name}-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
        lines = [
            line
            for group, points in entry_points.items()
            for line in (f"[{group}]", *(f"{point} = {target}" for point, target in points.items()))
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for registry in (METHODS, MODELS, DATA_SETS, SELECTORS):
            registry.names()  # registers the built-in parts
            monkeypatch.setattr(registry, "_parts", dict(registry._parts))
            old = registry.plug_ins
            monkeypatch.setattr(registry, "plug_ins", PlugIns(registry.noun, old._group, old._check))
        monkeypatch.setattr(library, "PLUG_INS", PlugIns("device profile", "edgefl.device_profiles", library._check))
        forget()

    def forget():
        for cached in (build.method_model, build._server_schema, library._named):
            cached.cache_clear()

    yield write
    forget()
    for name, module in list(sys.modules.items()):
        if str(folder) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def blocks(page, language):
    """The blocks of code of a page, or of one section of it (``page.md#Heading``)."""
    page, _, heading = page.partition("#")
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def package_of(page):
    """The name, the code and the entry points of a page's package."""
    project = tomllib.loads(blocks(page, "toml")[0])["project"]
    others = ("# ", ">>>")  # files of their own, and examples
    code = [block for block in blocks(page, "python") if not block.startswith(others)]
    return project["name"], "\n\n".join(code), project["entry-points"]


def simulated(scenario, folder, out="run"):
    (folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
    run(load_scenario(folder / "scenario.yaml"), out=folder / out, device="cpu", engine="sequential")
    return json.loads((folder / out / "summary.json").read_text(encoding="utf-8"))["methods"]


TEACHER = "methods.md#A frozen teacher"
TAUGHT = """
name: taught
data: {name: synthetic, shape: [1, 8, 8], classes: 4, train: 160, test: 40, clients: 4}
training: {rounds: 3, cohort: 2, local: {batch: 8, lr: 0.1}}
fleet: [{profile: raspberry-pi-5, share: 1, link: 5g}]
"""


def test_the_recipe_of_a_frozen_teacher_runs_as_the_page_shows_it(installed, tmp_path):
    installed(*package_of(TEACHER))
    entries = simulated(TAUGHT + blocks(TEACHER, "yaml")[0] + NETWORK, tmp_path)
    fedavg, taught = entries["fedavg"][0], entries["taught"][0]
    model = fedavg["bytes"]["down"] // (3 * 2)  # rounds, clients
    assert taught["bytes"]["down"] == 3 * 2 * model + 2 * 2 * model
    assert taught["bytes"]["up"] == fedavg["bytes"]["up"]
    assert taught["flops"] > fedavg["flops"]
    assert taught["accuracy"]["final"] > 0.5


REFUSED = {
    "no broadcast": (
        ("server=AveragingServer()", "server=Mean()"),
        "Taught reads 'teacher', which server update 'mean' does not send",
    ),
    "no part": (
        ("payload=ModelAndTeacher", "payload=Payload"),
        "AveragingServer broadcasts 'teacher', but Payload sends no part 'teacher' in round 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_teacher_that_nobody_sends_is_refused_before_anything_is_trained(installed, tmp_path, capsys, case):
    (before, after), message = REFUSED[case]
    name, code, entry_points = package_of(TEACHER)
    installed(name, code.replace(before, after), entry_points)
    scenario = TAUGHT + "model: {name: plain}\nmethods: [fedavg, taught]\n" + NETWORK
    (tmp_path / "scenario.yaml").write_text(scenario, encoding="utf-8")
    assert main(["simulate", "scenario.yaml", "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "methods.1" in line
    assert message in line
    assert not (tmp_path / "run").exists()


def test_a_method_in_a_file_next_to_the_scenario_runs_and_passes_its_own_tests(tmp_path, monkeypatch):
    page = "extending.md#A method"
    scenario = TAUGHT + "model: {name: cnn, width: 2}\n" + blocks(page, "yaml")[0] + NETWORK
    files = {block.partition("\n")[0].removeprefix("# "): block for block in blocks(page, "python")}
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    fedavg, near, far = (entries[0] for entries in simulated(scenario, tmp_path).values())
    assert near["bytes"]["up"] == fedavg["bytes"]["up"] + 3 * 2 * 16 * 4  # rounds, clients
    assert fedavg["accuracy"]["final"] != near["accuracy"]["final"] != far["accuracy"]["final"]
    monkeypatch.syspath_prepend(str(tmp_path))
    tests = runpy.run_path(str(tmp_path / "test_near.py"))
    sys.modules.pop("near")
    assert [tests[name]() for name in tests if name.startswith("test_")] == [None, None]


def test_a_capacity_and_a_selector_in_files_next_to_the_scenario_run_and_are_run_again(tmp_path, capsys, monkeypatch):
    """The beam of the docs: its draws are those of its file, and commands execute the file only with --trust."""
    for page, name in (("extending.md#A selector", "mine.py"), ("extending.md#The capacity of a link", "beam.py")):
        head = blocks("extending.md", "python")[0] if name == "mine.py" else ""
        (tmp_path / name).write_text(head + "\n".join(blocks(page, "python")), encoding="utf-8")
    scenario = (
        "name: beams\nmethods: [fedavg]\nmodel: {name: mlp}\ndata: {name: synthetic, clients: 6}\n"
        "training: {rounds: 3, cohort: 2, selection: {python: mine.py:Rotating}}\n"
        "fleet: [{profile: raspberry-pi-5, share: 1, link: 6g}]\n"
    )
    simulated(scenario + blocks("extending.md#The capacity of a link", "yaml")[0], tmp_path)
    rows = pq.read_table(tmp_path / "run" / "fedavg" / "seed-0" / "events.parquet").to_pylist()
    ups = [row for row in rows if row["kind"] == "transfer_end" and row["item"] == "up"]
    assert [row["client"] for row in ups] == [0, 1, 2, 3, 4, 5]
    for row in ups:
        blocked = generator(0, "beam", "6g", row["round"] - 1).random(6)[row["client"]] < 0.1
        assert 8 * row["bytes"] / row["seconds"] == pytest.approx(1e8 * (0.5 if blocked else 1.0)), row
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert "not executed without --trust" in capsys.readouterr().out
    assert main(["verify", "--trust", str(tmp_path / "run")]) == 0
    assert "same results when simulated again" in capsys.readouterr().out
    (tmp_path / "beam.py").write_text("raise SystemExit('changed')\n", encoding="utf-8")
    monkeypatch.setattr("edgefl.user_code._allowed", set())  # as in another process
    assert main(["report", str(tmp_path / "run")]) == 0
    assert main(["replay", str(tmp_path / "run"), "--out", str(tmp_path / "again")]) == 2
    assert "beam.py: network.links.6g" in capsys.readouterr().err


def test_a_selector_that_reads_what_there_is_not_is_refused(tmp_path, capsys):
    code = "\n".join(blocks("extending.md", "python")[:1] + blocks("extending.md#A selector", "python")[:1])
    code = code.replace('"""The selector of one run."""', 'reads = frozenset({"data_size"})')
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    selection = f"training.selection={{python: {tmp_path}/mine.py:Rotating}}"
    assert main(["scenario", "validate", "5g_10clients", "--set", selection]) == 1
    assert "its reads has 'data_size'; did you mean 'data_sizes'?" in capsys.readouterr().err


def test_a_block_scheduler_a_bandwidth_allocation_and_a_protocol_may_be_in_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        """
from edgefl.scheduling.bandwidth.base import BandwidthSpec
from edgefl.scheduling.bandwidth.shortest_first import ShortestFirst
from edgefl.scheduling.blocks.base import BlockScheduler, BlockSchedulerSpec
from edgefl.simulation.protocols.base import RoundsSpec
from edgefl.simulation.protocols.synchronous_course import Synchronous


class Last(BlockSchedulerSpec, BlockScheduler):
    blocks: int = 1

    def start(self, seed, blocks):
        return self

    def choose(self, round, cohort, forecast):
        return dict.fromkeys(cohort, self.blocks)


class Short(ShortestFirst):
    pass


class Pausing(RoundsSpec):
    pause: float = 5.0

    def course(self, world, book):
        return Pauses(world, book, self)


class Pauses(Synchronous):
    def picked(self, round, cohort):
        yield self.world.env.timeout(self.spec.pause)
""",
        encoding="utf-8",
    )
    scenario = (
        "name: parts\nmodel: {name: cnn, width: 2}\ndata: {name: synthetic, shape: [1, 16, 16], clients: 6}\n"
        "training: {rounds: 6, cohort: 2, bandwidth: {python: mine.py:Short}}\n"
        "fleet: [{profile: raspberry-pi-5, share: 1, link: 5g}]\n"
        "methods: [{method: fedbr, scheduler: {python: mine.py:Last}}, {method: fedbr, as: two, scheduler: "
        "{python: mine.py:Last, blocks: 2}}]\n"
    )
    one, two = (entries[0] for entries in simulated(scenario + NETWORK, tmp_path).values())
    assert one["bytes"]["down"] < two["bytes"]["down"]
    pausing = "protocol: {python: mine.py:Pausing, pause: 7}\n"
    later, _ = (entries[0] for entries in simulated(scenario + pausing + NETWORK, tmp_path, "later").values())
    assert later["seconds"] == pytest.approx(one["seconds"] + 6 * 7)


def test_a_data_set_a_model_a_selector_and_a_device_from_elsewhere_run_together(installed, tmp_path):
    installed(*package_of("extending.md"))
    scenario = "name: plugged-in\nmethods: [fedavg]\n" + blocks("extending.md", "yaml")[-1] + NETWORK
    entry = simulated(scenario, tmp_path)["fedavg"][0]
    assert entry["accuracy"]["final"] == pytest.approx(1.0, abs=0.05)
    rows = pq.read_table(tmp_path / "run" / "fedavg" / "seed-0" / "events.parquet").to_pylist()
    assert [json.loads(row["detail"])["clients"] for row in rows if row["kind"] == "decision"] == [
        [0, 1], [2, 3], [4, 5]
    ]  # fmt: skip


def test_a_figure_of_a_package_is_charged_by_its_name(installed, monkeypatch, tmp_path):
    monkeypatch.setattr(sections, "FIGURES", PlugIns("figure", "edgefl.figures", object_of(Quantity)))
    (code,) = blocks("extending.md#A figure", "python")
    installed("carbon", code, {"edgefl.figures": {"carbon": "carbon:CO2"}})
    scenario = TAUGHT + "model: {name: cnn, width: 2}\nmethods: [fedavg]\nfigures: [carbon]\n" + NETWORK
    entry = simulated(scenario, tmp_path)["fedavg"][0]
    assert entry["co2_grams"] == pytest.approx(entry["joules"] * 400 / 3.6e6)


BROKEN = {
    "raises": ("raise ZeroDivisionError('too\\nmuch')\n", "ZeroDivisionError: too much"),
    "exits": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "needs a module that is not there": ("import no_such_module_anywhere\n", "ModuleNotFoundError: No module named"),
    "has no such part": ("Other = 3\n", "AttributeError"),
    "is something else": ("Part = 3\n", "expected a"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plug_in_is_an_error_of_those_alone_who_name_it(installed, fault):
    code, message = BROKEN[fault]
    installed("mine", code, {"edgefl.models": {"broken": "mine:Part"}})
    assert MODELS["cnn"]
    assert "mine" not in sys.modules, "it is imported where it is named"
    with pytest.raises(UserError) as raised:
        MODELS["broken"]
    assert str(raised.value).startswith("the model 'broken' of the package mine 0.1 (mine:Part) cannot be used: ")
    assert message in str(raised.value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listed = dict(MODELS)
    assert [str(each.message) for each in caught if each.category is BrokenPlugIn] == [str(raised.value)]
    assert "broken" not in listed


def test_a_name_that_two_parts_have_is_refused_with_both(installed):
    code = "from edgefl.models.registry import MODELS\nPart = MODELS['cnn']\n"
    installed("mine", code, {"edgefl.models": {"cnn": "mine:Part", "twice": "mine:Part"}})
    installed("other", code, {"edgefl.models": {"twice": "other:Part"}})
    with pytest.raises(UserError, match=r"two models are called 'cnn': the built-in one .* mine 0\.1"):
        MODELS["cnn"]
    with pytest.raises(UserError, match=r"several models are called 'twice': .* 0\.1 .* 0\.1 "):
        MODELS["twice"]


DATA = """
from dataclasses import replace
from typing import Literal
import numpy as np
from edgefl.data.spec import DataSpec, Description, Samples

def images(count, **other):
    return Samples(np.zeros((count, 1, 8, 8), np.uint8), np.arange(count) % 4)._replace(**other)

class Part(DataSpec):
    name: Literal["mine"] = "mine"

    def declared(self):
        return DECLARED

    def read(self):
        return READ

PLAIN = Description(classes=4, shape=(1, 8, 8), train=(20,) * 4, test=(5,) * 4)
DECLARED = PLAIN
READ = images(80), images(20)
"""
WRONG_DATA = {
    "declares another type": ("DECLARED = 3", "declared returned 3; expected a Description or None"),
    "declares other counts": (
        "DECLARED = replace(PLAIN, train=(20,) * 3)",
        "as declared, (20, 20, 20), found [20, 20, 20, 20]",
    ),
    "raises": ("def read(self): raise KeyError('d')\nPart.read = read", "KeyError: 'd'"),
    "returns one split": ("READ = images(80)", "expected the training and the test data as Samples"),
    "fewer images": ("READ = images(60), images(20)", "found [15, 15, 15, 15]"),
    "fewer labels": ("READ = images(80, labels=np.arange(70) % 4), images(20)", "found an array of int64 [70]"),
    "another class": ("READ = images(80, labels=np.arange(80) % 5), images(20)", "labels from 0 to 3, found 4"),
    "another shape": (
        "READ = images(80, inputs=np.zeros((80, 3, 8, 8), np.uint8)), images(20)",
        "training inputs of the shape [1, 8, 8], as declared, found [3, 8, 8]",
    ),
    "floats": ("READ = images(80, inputs=np.zeros((80, 1, 8, 8))), images(20)", "an array of float64 [80, 1, 8, 8]"),
    "infinite": (
        "READ = images(80, inputs=np.full((80, 3), np.inf, np.float32)), images(20)\nDECLARED = None",
        "expected finite training inputs, found NaN or infinity in sample 0",
    ),
}
MODEL = """
import torch
from torch import nn
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import ModelSpec

class Part(ModelSpec):
    def build(self, sample_shape, classes):
        first = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8))
        blocks = BLOCKS(first, nn.Linear(8, classes))
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=1)

def BLOCKS(first, last):
    return {"first": first, "last": last}
"""
WRONG_MODELS = {
    "raises": ("def BLOCKS(first, last): raise KeyError('d')", "KeyError: 'd'"),
    "another type": ("Part.build = lambda *all: nn.Linear(3, 4)", "expected a BlockModel, found Linear(in_features=3"),
    "without parameters": ("def BLOCKS(first, last): return {'one': nn.ReLU(), 'two': nn.ReLU()}", "found 2 blocks"),
    "in half precision": (
        "def BLOCKS(first, last): return {'first': first, 'last': last.to(torch.float16)}",
        "expected float32 on cpu, found float16 on cpu in the parameter 'last.weight'",
    ),
}
CASES = {
    **{f"data: {case}": ("data set", DATA, *wrong) for case, wrong in WRONG_DATA.items()},
    **{f"model: {case}": ("model", MODEL, *wrong) for case, wrong in WRONG_MODELS.items()},
}


PLAIN = ["data: raises", "data: fewer images", "data: another class", "model: another type", "model: in half precision"]


@pytest.mark.parametrize(
    "case", [*PLAIN, *(pytest.param(case, marks=pytest.mark.full) for case in CASES if case not in PLAIN)]
)
def test_a_data_set_or_a_model_that_returns_something_wrong_is_named_before_training(installed, tmp_path, capsys, case):
    noun, code, more, message = CASES[case]
    group, setting = {
        "data set": ("edgefl.datasets", "data={name: mine, clients: 4}"),
        "model": ("edgefl.models", "model=mine"),
    }[noun]
    installed("mine_module", f"{code}{more}\n", {group: {"mine": "mine_module:Part"}})
    scenario = TAUGHT + "model: {name: cnn, width: 2}\nmethods: [fedavg]\n" + NETWORK
    (tmp_path / "small.yaml").write_text(scenario, encoding="utf-8")
    assert main(["simulate", "small.yaml", "--engine", "sequential", "--out", "run", "--set", setting]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"the {noun} 'mine' of the package mine_module 0.1 (mine_module:Part) cannot be used: " in line
    assert message in line
    assert not (tmp_path / "run").exists()

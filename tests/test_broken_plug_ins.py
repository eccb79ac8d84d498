"""One plug-in too many: whatever it does while it is imported, it concerns nobody who does not name it."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import pytest

from edgefl.cli import main
from edgefl.data.spec import DATA_SETS
from edgefl.errors import BrokenPlugIn, UserError
from edgefl.fleet import all_profiles, library, load_profile, profile_names
from edgefl.methods import build
from edgefl.methods.codecs.base import CODECS
from edgefl.methods.recipe import METHODS
from edgefl.methods.servers.base import SERVER_UPDATES
from edgefl.models.registry import MODELS
from edgefl.plug_ins import PlugIns
from edgefl.registry import Registry
from edgefl.scenario import json_schema
from edgefl.scheduling.bandwidth.base import ALLOCATIONS
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS
from edgefl.scheduling.selection.base import SELECTORS
from edgefl.tasks.base import TASKS

ROOT = Path(__file__).resolve().parents[1]


class Profiles:
    """Device profiles, asked like a registry."""

    noun = "device profile"
    names = staticmethod(profile_names)

    def __getitem__(self, name):
        return load_profile(name)

    def __iter__(self):
        return iter((profile.name, profile) for profile in all_profiles())


CLASS = "from {module} import {registry}\nclass Part({registry}['{name}']):\n    '''Another.'''\n"
"""A plug-in: a class derived from a built-in part."""

FAMILIES = {
    "edgefl.methods": (
        METHODS,
        "fedavg",
        "from dataclasses import replace\nfrom edgefl.methods.recipe import METHODS\n"
        "Part = replace(METHODS['fedavg'], summary='another')\n",
    ),
    "edgefl.models": (
        MODELS,
        "cnn",
        CLASS.format(module="edgefl.models.registry", registry="MODELS", name="cnn"),
    ),
    "edgefl.tasks": (
        TASKS,
        "regression",
        CLASS.format(module="edgefl.tasks.base", registry="TASKS", name="regression"),
    ),
    "edgefl.datasets": (
        DATA_SETS,
        "digits",
        "from typing import Literal\n"
        + CLASS.format(module="edgefl.data.spec", registry="DATA_SETS", name="digits")
        + "    name: Literal['mine'] = 'mine'\n",
    ),
    "edgefl.codecs": (
        CODECS,
        "cast",
        CLASS.format(module="edgefl.methods.codecs.base", registry="CODECS", name="cast"),
    ),
    "edgefl.servers": (
        SERVER_UPDATES,
        "mean",
        CLASS.format(module="edgefl.methods.servers.base", registry="SERVER_UPDATES", name="mean"),
    ),
    "edgefl.selectors": (
        SELECTORS,
        "uniform",
        CLASS.format(module="edgefl.scheduling.selection.base", registry="SELECTORS", name="uniform"),
    ),
    "edgefl.block_schedulers": (
        BLOCK_SCHEDULERS,
        "all",
        CLASS.format(module="edgefl.scheduling.blocks.base", registry="BLOCK_SCHEDULERS", name="all"),
    ),
    "edgefl.bandwidth": (
        ALLOCATIONS,
        "proportional",
        CLASS.format(module="edgefl.scheduling.bandwidth.base", registry="ALLOCATIONS", name="proportional"),
    ),
    "edgefl.device_profiles": (
        Profiles(),
        "raspberry-pi-5",
        "from edgefl.fleet import load_profile\n"
        "Part = {**load_profile('raspberry-pi-5').model_dump(), 'name': 'mine'}\n",
    ),
}
"""Each entry-point group with its family, a built-in name, and the code of a sound part."""

BROKEN = {
    "raises": ("raise ZeroDivisionError('too\\nmuch')\n", "ZeroDivisionError: too much"),
    "exits": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "raises what nobody catches": ("class Odd(BaseException): pass\nraise Odd('odd')\n", "Odd: odd"),
    "raises what cannot be printed": (
        "class Odd(Exception):\n    def __str__(self): raise Odd\nraise Odd\n",
        "cannot be used: Odd",
    ),
    "needs a module that is not there": ("import no_such_module_anywhere\n", "ModuleNotFoundError: No module named"),
    "is no Python": ("def\n", "SyntaxError"),
    "has no such part": ("Other = 3\n", "AttributeError"),
    "is something else": ("Part = 3\n", "expected a"),
    "is another class": ("class Part: pass\n", "expected a"),
}
SOUND = {
    "prints": "print('hello from a plug-in')\n",
    "moves to another folder": "import os\nos.chdir('/')\n",
}


@pytest.fixture
def plug_ins(tmp_path, monkeypatch):
    """Installs packages, each with one part, and forgets what was known of installed ones."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)

    registries = [family for family, *_ in FAMILIES.values() if isinstance(family, Registry)]
    for registry in registries:
        registry.names()  # what is built in has registered itself
    parts = [dict(registry._parts) for registry in registries]

    def forget():
        for registry, known in zip(registries, parts, strict=True):
            monkeypatch.setattr(registry, "_parts", dict(known))
            old = registry._plug_ins
            monkeypatch.setattr(registry, "_plug_ins", PlugIns(registry.noun, old._group, old._check))
        monkeypatch.setattr(library, "PLUG_INS", PlugIns("device profile", "edgefl.device_profiles", library._check))
        for cached in (build.method_model, build._server_schema):
            cached.cache_clear()

    def install(groups, name, code, *, package="mine"):
        module = f"{package}_module"
        (folder / f"{module}.py").write_text(f"import pathlib\npathlib.Path(__file__ + '.ran').touch()\n{code}")
        metadata = folder / f"{package}-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        points = "\n".join(f"[{group}]\n{name} = {module}:Part" for group in groups.split())
        (metadata / "entry_points.txt").write_text(points)
        forget()
        return folder / f"{module}.py.ran"

    yield install
    for cached in (build.method_model, build._server_schema, library._named):
        cached.cache_clear()
    for name, module in list(sys.modules.items()):
        if str(folder) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def test_every_group_of_entry_points_is_tried_here():
    source = "\n".join(path.read_text() for path in (ROOT / "edgefl").rglob("*.py"))
    assert set(
        re.findall(r'"(edgefl\.[a-z_]+)"', "\n".join(re.findall(r'(?:group=|PlugIns\([^)]*)"edgefl\.[a-z_]+"', source)))
    ) == set(FAMILIES)


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("group", FAMILIES)
def test_a_broken_plug_in_is_an_error_of_those_alone_who_name_it(plug_ins, capsys, group, fault):
    family, built_in, sound = FAMILIES[group]
    code, told = BROKEN[fault]
    ran = plug_ins(group, "mine", code)
    plug_ins(group, "sound", sound.replace("'mine'", "'sound'"), package="other")
    family[built_in]
    assert {"mine", "sound", built_in} <= set(family.names())
    assert not ran.exists(), "it is not imported before it is named"
    for _ in range(2):
        with pytest.raises(UserError) as raised:
            family["mine"]
        for part in (f"the {family.noun} 'mine'", "package mine 0.1", "mine_module:Part", told):
            assert part in str(raised.value)
        assert "\n" not in str(raised.value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listed = dict(family)
    assert [str(each.message) for each in caught if each.category is BrokenPlugIn] == [str(raised.value)]
    assert "mine" not in listed
    assert {"sound", built_in} <= set(listed)


@pytest.mark.parametrize("deed", SOUND)
@pytest.mark.parametrize("group", FAMILIES)
def test_what_a_plug_in_does_while_it_is_imported_is_undone(plug_ins, capsys, tmp_path, group, deed):
    family, _, sound = FAMILIES[group]
    plug_ins(group, "mine", SOUND[deed] + sound)
    assert family["mine"]
    assert Path.cwd() == tmp_path
    output = capsys.readouterr()
    assert output.out == ""
    assert ("hello from a plug-in" in output.err) == (deed == "prints")


@pytest.mark.parametrize("group", FAMILIES)
def test_a_name_that_two_have_is_refused_with_both(plug_ins, group):
    family, built_in, sound = FAMILIES[group]
    plug_ins(group, built_in, sound)
    plug_ins(group, "twice", sound, package="one")
    plug_ins(group, "twice", sound, package="two")
    library._named.cache_clear()
    with pytest.raises(UserError, match=rf"two {family.noun}s are called '{built_in}': the built-in one .* mine 0\.1"):
        family[built_in]
    with pytest.raises(UserError, match=rf"several {family.noun}s are called 'twice': .* one 0\.1 .* two 0\.1"):
        family["twice"]


def test_ctrl_c_while_a_plug_in_is_imported_stays_ctrl_c(plug_ins):
    plug_ins("edgefl.models", "mine", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        MODELS["mine"]


SCENARIO = """
name: small
data: {name: synthetic, shape: [1, 8, 8], classes: 4, train: 40, test: 20, clients: 4}
model: {name: cnn, width: 2}
training: {rounds: 1, cohort: 2, local: {batch: 10, lr: 0.1}}
fleet: [{profile: raspberry-pi-5, share: 1, link: 5g}]
methods: [fedavg]
network:
  topology: {kind: star, server: {down: 100 Mbit/s, up: 100 Mbit/s}, latency: 20 ms}
  links: {5g: {down: 20 Mbit/s, up: 20 Mbit/s}}
"""
NAMED = {
    "edgefl.methods": "methods=[mine]",
    "edgefl.tasks": "task=mine",
    "edgefl.models": "model=mine",
    "edgefl.datasets": "data={name: mine}",
    "edgefl.codecs": "training.codec.up=mine",
    "edgefl.servers": "methods=[{method: fedavg, server: mine}]",
    "edgefl.selectors": "training.selection=mine",
    "edgefl.block_schedulers": "methods=[{method: fedbr, scheduler: mine}]",
    "edgefl.bandwidth": "training.bandwidth=mine",
    "edgefl.device_profiles": "fleet.0.profile=mine",
}


@pytest.mark.parametrize("group", FAMILIES)
def test_a_command_stops_where_its_scenario_names_a_broken_plug_in_and_nowhere_else(plug_ins, capsys, tmp_path, group):
    ran = plug_ins(group, "mine", "import sys\nprint('hello')\nsys.exit(3)\n")
    (tmp_path / "small.yaml").write_text(SCENARIO)
    run = ["simulate", "small.yaml", "--no-train", "--json", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    assert json.loads(capsys.readouterr().out)
    assert not ran.exists()
    assert main(["simulate", "small.yaml", "--no-train", "--out", "other", "--set", NAMED[group]]) == 2
    output = capsys.readouterr()
    (line,) = [line for line in output.err.splitlines() if line != "hello"]
    assert line.startswith("error: ")
    for part in ("'mine'", "package mine 0.1", "SystemExit: 3"):
        assert part in line
    assert not (tmp_path / "other").exists()


LISTS = {
    "edgefl.methods": ["methods"],
    "edgefl.models": ["models"],
    "edgefl.datasets": ["datasets"],
    "edgefl.device_profiles": ["profile", "list"],
}


@pytest.mark.parametrize("group", LISTS)
def test_a_list_leaves_a_broken_plug_in_out_and_says_so_once(plug_ins, capsys, group):
    plug_ins(group, "mine", "import sys\nprint('hello')\nsys.exit(3)\n")
    assert main([*LISTS[group], "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)
    assert '"mine"' not in output.out
    (line,) = [line for line in output.err.splitlines() if line != "hello"]
    assert re.match(r"warning: the .* 'mine' of the package mine 0\.1 .* cannot be used: SystemExit: 3$", line)


def test_the_schema_leaves_broken_plug_ins_out_and_says_so_once_of_each(plug_ins, capsys):
    plug_ins(" ".join(FAMILIES), "mine", "import sys\nprint('hello')\nsys.exit(3)\n")
    assert main(["scenario", "schema"]) == 0
    output = capsys.readouterr()
    assert '"mine"' not in json.dumps(json.loads(output.out))
    told = [line for line in output.err.splitlines() if line.startswith("warning: ")]
    nouns = {family.noun for family, *_ in FAMILIES.values()} - {"device profile"}
    assert sorted(re.match("warning: the (.*) 'mine'", line)[1] for line in told) == sorted(nouns)


def test_a_plug_in_whose_options_have_no_schema_is_left_out_of_lists(plug_ins):
    plug_ins(
        "edgefl.models",
        "mine",
        "from collections.abc import Callable\nfrom edgefl.models.registry import MODELS\n"
        "class Part(MODELS['cnn']):\n    made: Callable = print\n",
    )
    with pytest.warns(BrokenPlugIn, match=r"'mine' of the package mine 0\.1 .* cannot be used: PydanticInvalidForJson"):
        assert json_schema()["properties"]["model"]


def test_a_part_that_also_registers_itself_is_one_part(plug_ins):
    code = "from edgefl.models.registry import MODELS\n@MODELS.register('mine')\nclass Part(MODELS['cnn']):\n    pass\n"
    plug_ins("edgefl.models", "mine", code)
    import mine_module

    assert MODELS["mine"] is MODELS["mine"] is mine_module.Part

"""Whatever a part of a method raises, returns or does is that method's fault alone, and the directory is complete."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefl.cli import main
from edgefl.experiment import RunsFailed, is_interrupted, run
from edgefl.methods.client_state import ClientState
from edgefl.methods.codecs.base import CODECS
from edgefl.methods.codecs.quantise import Quantise
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.objectives.fedprox import FedProx
from edgefl.methods.payload import Downlink, Part, Payload
from edgefl.methods.payloads.blocks import BlocksPayload
from edgefl.methods.recipe import METHODS
from edgefl.methods.rules.scaffold import ScaffoldRule
from edgefl.methods.rules.sgd import Velocity
from edgefl.methods.servers.base import SERVER_UPDATES
from edgefl.methods.servers.fedavgm import FedAvgM
from edgefl.methods.servers.mean import Mean
from edgefl.rerun.verify import verify
from edgefl.scenario.components import BuildFault
from edgefl.scenario.loading import check
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS
from edgefl.scheduling.blocks.random import Random, RandomScheduler
from edgefl.scheduling.selection.uniform import UniformSelector
from edgefl.training.personalisation import client_metric

from ..small_runs import SMALL, tree

SOUND = ["fedavg", "fednova"]
LEARNING = "edgefl.methods"
FEDAVGM = f"{LEARNING}.servers.fedavgm.FedAvgM"
FEDPROX = f"{LEARNING}.objectives.fedprox.FedProx"
QUANTISE = f"{LEARNING}.codecs.quantise.Quantise"
UNIFORM = "edgefl.scheduling.selection.uniform.UniformSelector"


class Odd(BaseException):
    """Nobody catches it by accident."""


def raising(*arguments, **options):
    raise KeyError("lost\nand gone")


def exiting(*arguments, **options):
    sys.exit(3)


def odd(*arguments, **options):
    raise Odd("odd")


def nothing(*arguments, **options):
    return None


DEEDS = {
    "raises": (raising, r"KeyError: 'lost\\nand gone'$"),
    "exits": (exiting, "SystemExit: 3$"),
    "is odd": (odd, "Odd: odd$"),
}
PLACES = {
    "server update": [(FedAvgM, "begin"), (FedAvgM, "update")],
    "objective": [(FedProx, "loss"), (FedProx, "adapt"), (FedProx, "evaluation_mode")],
    "local rule": [(ScaffoldRule, "begin"), (ScaffoldRule, "update")],
    "client state": [(Velocity, "first"), (Velocity, "after")],
    "codec up": [(Quantise, "bytes"), (Quantise, "encode"), (Quantise, "decode")],
    "codec down": [(Quantise, "encode"), (Quantise, "decode")],
    "payload": [(BlocksPayload, "partial"), (BlocksPayload, "downlink"), (BlocksPayload, "uplink")],
    "block scheduler": [(RandomScheduler, "choose"), (RandomScheduler, "observe"), (Random, "start")],
}
"""What is called of the parts of each family."""

WRONG = {
    ("server update", FedAvgM, "update"): {
        "no pair": (lambda self, p, d, w, s, f: p, "server update FedAvgM: update returned tensor"),
        "no tensor": (lambda self, p, d, w, s, f: (None, s), "as the next parameters None; expected a tensor"),
        "too short": (
            lambda self, p, d, w, s, f: (p[1:], s),
            r"parameters a tensor of float32 \[.*; expected float32 \[",
        ),
        "doubles": (lambda self, p, d, w, s, f: (p.double(), s), r"a tensor of float64 \[.*; expected float32 \["),
        "all deltas": (lambda self, p, d, w, s, f: (d, s), r"a tensor of float32 \[3, .*; expected float32 \["),
        "no state": (lambda self, p, d, w, s, f: (p, None), "server state None; expected tensors by name"),
        "numbers": (lambda self, p, d, w, s, f: (p, {"m": 1}), "server state {'m': 1}; expected tensors by name"),
    },
    ("server update", FedAvgM, "begin"): {"nothing": (nothing, "server state None; expected tensors by name")},
    ("block scheduler", RandomScheduler, "choose"): {
        "nothing": (nothing, "block scheduler: it returned None; expected a mapping from client to number of blocks"),
        "no blocks": (lambda self, r, c, f: dict.fromkeys(c, 0), "returned 0 blocks for client .; expected 1 to 4"),
        "too many": (lambda self, r, c, f: dict.fromkeys(c, 5), "returned 5 blocks for client .; expected 1 to 4"),
        "a half": (lambda self, r, c, f: dict.fromkeys(c, 1.5), "returned 1.5 blocks for client .; expected 1 to 4"),
        "true": (lambda self, r, c, f: dict.fromkeys(c, True), "returned True blocks for client .; expected 1 to 4"),
        "not all": (lambda self, r, c, f: {}, "returned no number of blocks for client ."),
        "strangers": (lambda self, r, c, f: dict.fromkeys([*c, -1], 2), "blocks for -1, which is not a client"),
    },
    ("codec up", Quantise, "encode"): {
        "nothing": (nothing, "codec Quantise: encode returned None; expected tensors by name"),
        "too much": (lambda self, tensor, numbers: {"all": tensor.clone()}, "encode returned .* bytes .* bytes says"),
    },
    ("codec up", Quantise, "decode"): {
        "nothing": (nothing, "decode returned None; expected a tensor"),
        "another size": (lambda self, e, shape: torch.zeros(3), r"tensor of float32 \[3\]; expected float32 \["),
        "doubles": (lambda self, e, shape: torch.zeros(shape).double(), "tensor of float64"),
    },
    ("codec up", Quantise, "bytes"): {
        "nothing": (nothing, "bytes returned None; expected a whole number"),
        "fewer than none": (lambda self, shape: -4, "bytes returned -4; expected a whole number"),
    },
    ("payload", BlocksPayload, "downlink"): {
        "nothing": (nothing, "payload: downlink returned None; expected a Downlink"),
        "alpha": (lambda self, s, r, a, h: Downlink((), 9), "downlink returned alpha = 9; expected 1 to 4"),
        "bytes": (
            lambda self, s, r, a, h: Downlink((Part("x", -5, r),), 4),
            "part 'x' has -5 bytes; expected 0 or more",
        ),
    },
    ("payload", BlocksPayload, "uplink"): {
        "a number": (lambda self, sizes: 3, "it sends 3; expected a tuple of parts")
    },
}
"""What parts must not return, and what is said of it."""


def cases():
    """Each case's label, family, class, attribute, what it is replaced by, and what is said."""
    for family, places in PLACES.items():
        for kind, attribute in places:
            for deed, (function, told) in DEEDS.items():
                yield f"{family} {attribute} {deed}".replace(" ", "-"), (family, kind, attribute, function, told)
    for (family, kind, attribute), answers in WRONG.items():
        for answer, (function, told) in answers.items():
            yield f"{family} {attribute} gives {answer}".replace(" ", "-"), (family, kind, attribute, function, told)


CASES = dict(cases())


def entry_of(label, family, kind, attribute, function):
    """Registers a part that is broken there, and returns the entry of a method that has it."""
    if attribute == "downlink":  # that of a whole model is also asked for when the method is built
        wrong = function

        def function(self, sizes, round, alpha, held):
            asked = sizes, round, alpha, held
            return kind.downlink(self, *asked) if alpha is None else wrong(self, *asked)

    broken = type(kind)(kind.__name__, (kind,), {attribute: function, "__module__": __name__, "__qualname__": label})
    if family == "server update":
        SERVER_UPDATES.register(label)(broken)
        return {"method": "fedavg", "server": label}
    if family.startswith("codec"):
        CODECS.register(label)(broken)
        return {"method": "fedavg", "codec": {family.removeprefix("codec "): {"kind": label}}}
    if family == "block scheduler":
        if kind is RandomScheduler:
            broken = type(Random)("Spec", (Random,), {"start": lambda self, *of: broken_scheduler(*of)})
            broken_scheduler = type(RandomScheduler)(kind.__name__, (kind,), {attribute: function})
        BLOCK_SCHEDULERS.register(label)(broken)
        return {"method": "fedbr", "scheduler": label}
    changes = {
        "objective": {"objective": broken},
        "local rule": {"rule": broken},
        "client state": {"state": broken() if family == "client state" else None},
        "payload": {"payload": broken},
    }[family]
    base = {"objective": "fedprox", "local rule": "scaffold", "client state": "fedavg", "payload": "fedbr"}[family]
    METHODS.register(label)(replace(METHODS[base], **changes))
    return {"method": label}


def scenario_of(*entries):
    """The small scenario with the sound methods around the entries."""
    data = json.loads(json.dumps(SMALL))
    data["training"] |= {"rounds": 2, "engine": {"kind": "sequential"}}
    data["data"] |= {"train": 64, "test": 16}
    return check(data | {"methods": [SOUND[0], *entries, SOUND[1]]})


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The files of the sound methods' runs, as they are without a broken one beside them."""
    return tree(run(scenario_of(), out=tmp_path_factory.mktemp("sound") / "run"))


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """One run directory of every case, and the error that the command ended with."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for registry in (METHODS, SERVER_UPDATES, CODECS, BLOCK_SCHEDULERS):
            registry.names()
            patch.setattr(registry, "_parts", dict(registry._parts))
        entries = [{**entry_of(label, *case[:-1]), "as": label} for label, case in CASES.items()]
        with pytest.raises(RunsFailed) as told:
            run(scenario_of(*entries), out=folder)
        assert verify(folder) == []
    return folder, told.value


@pytest.mark.parametrize("label", CASES)
def test_a_fault_of_a_part_is_said_of_its_method(failed, label):
    folder, error = failed
    (entry,) = json.loads((folder / "summary.json").read_text())["methods"][label]
    message = entry["stop"]["message"]
    assert entry["stop"]["reason"] == "fault"
    assert message.startswith(f"method '{label}', ")
    assert re.search(CASES[label][-1], message), message
    assert "\n" not in message
    assert f"{label}, seed 0: {message}" in error.messages


def test_the_other_methods_go_on_and_the_directory_is_complete(failed, sound):
    folder, error = failed
    assert f"{len(CASES)} of {len(CASES) + 2} runs ended by a fault" in str(error)
    assert not is_interrupted(folder)
    there = tree(folder)
    of_sound = [name for name in sound if name.startswith(tuple(f"{label}/" for label in SOUND))]
    assert len(of_sound) > 4
    for name in of_sound:
        assert there[name] == sound[name], name


PICKS = {
    "-1": (lambda a, n: [-1], "it returned client -1; expected one that is available, of 0 to 7"),
    "unknown": (lambda a, n: np.array([8]), "it returned client 8; expected one that is available, of 0 to 7"),
    "one twice": (lambda a, n: [2, 1, 2], "it returned client 2 twice; expected different ones"),
    "too many": (lambda a, n: a, "it returned 8 clients; expected 3 or fewer"),
    "no numbers": (lambda a, n: ["0", "1"], r"it returned \['0', '1'\]; expected an array of client numbers"),
    "fractions": (lambda a, n: a[:n] + 0.5, "expected an array of client numbers"),
    "a mask": (lambda a, n: a < n, "expected an array of client numbers"),
    "a matrix": (lambda a, n: a[:2].reshape(2, 1), "expected an array of client numbers"),
    "nothing": (lambda a, n: None, "it returned None; expected an array of client numbers"),
    "a number": (lambda a, n: 3, "it returned 3; expected an array of client numbers"),
    "exit": (lambda a, n: sys.exit(3), "SystemExit: 3"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_part_that_raises_when_a_scenario_is_checked_is_named_with_its_place(monkeypatch, deed):
    function, told = DEEDS[deed]
    monkeypatch.setattr(BlocksPayload, "downlink", function)
    with pytest.raises(BuildFault, match=rf"^methods\.1: this part cannot be built: {told}"):
        scenario_of("fedbr")


@pytest.mark.parametrize(("answer", "train"), [*((answer, False) for answer in PICKS), ("-1", True)])
def test_a_selector_that_picks_wrongly_is_named_in_every_run(tmp_path, monkeypatch, answer, train):
    wrong, told = PICKS[answer]
    monkeypatch.setattr(f"{UNIFORM}.pick", lambda self, round, available, cohort, facts: wrong(available, cohort))
    folder = tmp_path / "run"
    with pytest.raises(RunsFailed, match=rf"2 of 2 runs .* fednova, seed 0: round 1, selection: .*{told}"):
        run(scenario_of(), out=folder, train=train)
    assert verify(folder) == []
    assert not is_interrupted(folder)


def test_a_cohort_in_any_order_counts_as_an_ascending_one(tmp_path, monkeypatch):
    expected = run(scenario_of(), out=tmp_path / "expected", train=False)
    pick = UniformSelector.pick
    monkeypatch.setattr(f"{UNIFORM}.pick", lambda self, *arguments: pick(self, *arguments)[::-1].tolist())
    assert tree(run(scenario_of(), out=tmp_path / "run", train=False)) == tree(expected)


@pytest.mark.parametrize("written", ["parameters", "state", "deltas"])
def test_a_server_update_that_writes_into_what_it_is_given_changes_no_other_method(
    tmp_path, monkeypatch, sound, written
):
    update = FedAvgM.update

    def begin(self, parameters):
        return {"momentum": parameters.zero_()}

    def writing(self, parameters, deltas, weights, state, facts):
        new, after = update(self, parameters, deltas, weights, dict(state), facts)
        if written == "parameters":
            return parameters.copy_(new), after
        if written == "state":
            for name, vector in after.items():
                state[name].copy_(vector)
            return new, state
        deltas.fill_(7)
        return new, after

    # The writer of checkpoints notices a state that was changed in place.
    monkeypatch.setattr("edgefl.experiment.resuming.CHECKPOINT_EVERY", 1)
    expected = run(scenario_of("fedavgm"), out=tmp_path / "expected")
    monkeypatch.setattr(FedAvgM, "update", writing)
    monkeypatch.setattr(FedAvgM, "begin", begin)
    assert tree(run(scenario_of("fedavgm"), out=tmp_path / "run")) == tree(expected)


@pytest.mark.parametrize(
    ("place", "entry"),
    [
        (f"{UNIFORM}.pick", "fedprox"),
        (f"{FEDAVGM}.update", "fedavgm"),
        (f"{FEDPROX}.loss", "fedprox"),
        (f"{QUANTISE}.encode", {"method": "fedavg", "as": "coded", "codec": {"up": {"kind": "quantise", "bits": 8}}}),
    ],
)
def test_a_part_that_changes_the_working_directory_leads_nothing_astray(tmp_path, monkeypatch, place, entry):
    expected = run(scenario_of(entry), out=tmp_path / "expected")
    holder, _, name = place.rpartition(".")
    module, _, kind = holder.rpartition(".")
    before = getattr(getattr(sys.modules[module], kind), name)

    def wandering(*arguments, **options):
        os.chdir(elsewhere)
        return before(*arguments, **options)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(place, wandering)
    monkeypatch.chdir(tmp_path)
    run(scenario_of(entry), out=Path("run"))
    assert Path.cwd() == tmp_path
    assert tree(tmp_path / "run") == tree(expected)
    assert not list(elsewhere.iterdir())


def change_torch():
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")


CHANGES = {
    "torch": change_torch,
    "numpy": lambda: np.seterr(all="raise"),
    "environment": lambda: os.environ.update(EDGEFL_DATA="/nowhere", EDGEFL_CHANGED="1"),
    "warnings": lambda: warnings.simplefilter("error"),
}


def process_settings():
    numbers = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_deterministic_debug_mode()
    return *numbers, torch.get_float32_matmul_precision(), np.geterr(), dict(os.environ), list(warnings.filters)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("place", "entry"), [(f"{FEDAVGM}.update", "fedavgm"), (f"{FEDPROX}.loss", "fedprox")])
def test_a_part_that_changes_the_process_changes_no_other_method(tmp_path, monkeypatch, sound, place, entry, change):
    holder, _, name = place.rpartition(".")
    module, _, kind = holder.rpartition(".")
    original = getattr(getattr(sys.modules[module], kind), name)

    def changing(*arguments, **options):
        answer = original(*arguments, **options)
        CHANGES[change]()
        return answer

    known = process_settings()
    with monkeypatch.context() as patched, suppress(RunsFailed):  # the method itself may fail
        patched.setattr(place, changing)
        run(scenario_of(entry), out=tmp_path / "run")
    assert process_settings() == known
    there = tree(tmp_path / "run")
    for name in [name for name in sound if "/" in name]:
        assert there[name] == sound[name]


def test_a_fault_after_the_last_round_ends_its_method_alone(tmp_path, monkeypatch, small):
    changes = {"data__test": "partitioned", "personalisation": {"kind": "calibration"}, "training__rounds": 2}
    expected = tree(run(small(methods=SOUND, **changes), out=tmp_path / "expected"))
    methods, counted = [SOUND[0], "fedprox", SOUND[1]], []
    fine = client_metric.metric_of_one

    def failing(*arguments):
        counted.append(0)
        if len(counted) == 2:  # the first method asks once
            sys.exit(3)
        return fine(*arguments)

    monkeypatch.setattr(client_metric, "metric_of_one", failing)
    with pytest.raises(RunsFailed, match=r"1 of 3 runs .* method 'fedprox', round 2, .*: SystemExit: 3"):
        run(small(methods=methods, **changes), out=tmp_path / "run")
    there = tree(tmp_path / "run")
    for name in [name for name in expected if "/" in name]:
        assert there[name] == expected[name]
    assert verify(tmp_path / "run") == []


def test_standard_output_of_json_is_json_whatever_a_part_prints(small, tmp_path, monkeypatch, capsys):
    small()
    pick = UniformSelector.pick

    def talking(self, *arguments):
        print("picking")
        return pick(self, *arguments)

    monkeypatch.setattr(UniformSelector, "pick", talking)
    arguments = ["simulate", str(tmp_path / "small.yaml"), "--no-train", "--json", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["scenario"] == "small"
    assert "picking" in output.err


def test_no_command_ends_silently_where_a_part_exits(small, tmp_path, monkeypatch, capsys):
    small()
    monkeypatch.setattr(f"{FEDPROX}.adapt", exiting)
    assert main(["cost", "--model", "cnn", "--method", "fedprox"]) == 1
    assert "fault: SystemExit: 3" in capsys.readouterr().err


def test_a_part_that_cannot_be_built_is_named_before_anything_is_written(small, tmp_path, monkeypatch, capsys):
    small()
    monkeypatch.setattr(f"{FEDPROX}.adapt", exiting)
    arguments = ["simulate", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run"), "--set", "methods=[fedprox]"]
    assert main(arguments) == 1
    assert "methods.0: this part cannot be built: SystemExit: 3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def without_its_vector(self, received, parameter_count):
    """A client state that lacks the vector that its loss reads."""
    return {}


class ShortTeacher(Mean):
    """Broadcasts a teacher that is a model in round 1 and three numbers after it."""

    broadcasts = ("teacher",)

    def begin(self, parameters):
        return {"teacher": parameters}

    def update(self, parameters, deltas, weights, state, facts):
        after, _ = super().update(parameters, deltas, weights, state, facts)
        return after, {"teacher": after[:3].clone()}


class ModelAndTeacher(Payload):
    """Two models down, one up."""

    def downlink(self, sizes, round, alpha, held):
        parts = [Part("model", sizes.model_bytes, round), Part("teacher", sizes.model_bytes, round)]
        return Downlink(tuple(parts), sizes.blocks)


class ReadsTeacher(CrossEntropy):
    """Reads a teacher and ignores it."""

    frozen = frozenset({"teacher"})


class ReadsPrevious(CrossEntropy):
    """Reads the client's last model and ignores it."""

    frozen = frozenset({"previous"})


UNRESOLVED = {
    "a broadcast of another length": (
        {"objective": ReadsTeacher, "server": ShortTeacher(), "payload": ModelAndTeacher, "server_choice": False,
         "server_reason": "-"},
        r"round 2, .*the frozen copy 'teacher' has 3 numbers; expected",
    ),
    "a client state without its vector": (
        {"objective": ReadsPrevious,
         "state": type("Stateless", (ClientState,), {"first": without_its_vector, "__module__": __name__})()},
        r"round 1, .*'previous'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNRESOLVED)
def test_a_fault_while_a_jobs_inputs_are_put_together_ends_its_method_alone(tmp_path, monkeypatch, sound, case):
    """Before any step, and so in nothing that a local step, a server update or a codec is called by."""
    changes, told = UNRESOLVED[case]
    METHODS.names()
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS._parts))
    METHODS.register("unresolved")(replace(METHODS["fedavg"], **changes))
    folder = tmp_path / "run"
    with pytest.raises(
        RunsFailed, match=rf"1 of 3 runs ended by a fault: unresolved, seed 0: method 'unresolved', {told}"
    ):
        run(scenario_of("unresolved"), out=folder)
    there = tree(folder)
    for name in [name for name in sound if "/" in name]:
        assert there[name] == sound[name], name
    assert not is_interrupted(folder)
    assert verify(folder) == []

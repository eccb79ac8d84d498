"""Whatever text stands in a run directory, every output shows it as text or one message refuses it.

The places of texts are read from the files of runs, and these files have every text that their schemas allow, so a new
file, column or key is covered without a change here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.data.spec import DATA_SETS
from edgefl.experiment import RunsFailed, run
from edgefl.methods.objectives.fedprox import FedProx
from edgefl.methods.recipe import METHODS
from edgefl.models.registry import MODELS
from edgefl.plug_ins import PlugIns
from edgefl.record import emulation, names
from edgefl.record.names import LABEL_PATTERN
from edgefl.scenario.loading import check
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL, Stop
from . import readers, text_fields
from .test_fuzz import cases, folder
from .text_places import places, put

SCENARIO: dict[str, Any] = {
    **SMALL,
    "data": {**SMALL["data"], "train": 160, "test": "partitioned", "test_images": 40},
    "training": {**SMALL["training"], "rounds": 2},
    "methods": ["fedavg", {"method": "fedbr", "as": "br"}],
    "keep_models": "server",
    "budgets": {"seconds": "1 s", "bytes": "1 kB"},
    "failures": [
        {"kind": "outage", "link": ["internet", "client/0"], "at": "30 ms", "duration": "1 s"},
        {"kind": "crash", "client": 1, "at": 0},
    ],
}
PARTS = [
    *("\x1b]0;forged\x07\x1b[31m", "\nforged", "\r", "\t", "\x0b", "\x85", "\u2028forged", "\x9b2J", "\0", "\ud800"),
    *("\u202egnp.forged\u2066", "\u200b", "\ufeff", "</script><script>forged()</script>", "<!--", "]]>", "&lt;forged"),
    *("<img src=x onerror=forged()>", '" onload="forged()', "' style='forged'", "\\write18{forged}", "\\", "%", "\n%"),
    *("$\\frac{", "$x$", "^", "_", "{", "}", "#", "&", "~", "=cmd|' /C forged'!A0", "@SUM(1)", "+1", "-1", "|", "`"),
    *("[red]forged[/red]", "[/]", "[link=forged]", "![f](forged)", "[f](javascript:forged())", "**", "```\nforged"),
    *("{{ forged }}", "{% forged %}", "{}", "%s", "../../forged", "a" * 300, '"', "'", ",", ";", "\n\n# forged"),
]
"""Pieces that mean something to a terminal, HTML, LaTeX, Markdown, a spreadsheet, a template or a path."""
TOGETHER = "".join(PARTS)
HOSTILE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join) | st.just(TOGETHER)


class Output(NamedTuple):
    """A command, and a reader of what it prints or writes to its last argument."""

    command: list[str]
    reader: Callable[[Any], Any] | None = None


def _report(kind: str, *more: str) -> dict[str, Output]:
    formats: dict[str, tuple[list[str], Callable[[str], Any] | None]] = {
        "text": ([], None),
        "markdown": (["--format", "markdown"], readers.check_markdown),
        "csv": (["--format", "csv"], readers.check_csv),
        "latex": (["--format", "latex"], readers.check_latex),
        "JSON": (["--json"], readers.check_json),
    }
    return {f"{kind}, {name}": Output(["report", *more, *words], reader) for name, (words, reader) in formats.items()}


SWEEP = [
    *("sweep", "BASIS.yaml", "--grid", "training.selection.kind=uniform,coverage"),
    *("--grid", "training.local.lr=0.1,0.2", "--out", "SWEEP", "--no-train"),
]
OUTPUTS = {
    **_report("table", "RUN"),
    **_report("two runs", "RUN", "OTHER"),
    **_report("paper", "RUN", "--layout", "paper"),
    **_report("against", "EMULATED", "--against", "RUN"),
    **_report("published", "RUN", "--against", "paper"),
    "page": Output(["report", "RUN", "EMULATED", "--html", "OUT.html"]),
    "scalars": Output(["report", "RUN", "--tensorboard", "OUT"], readers.check_scalars),
    "trace": Output(["timeline", "RUN", "--method", "br", "-o", "OUT.json"], readers.check_trace),
    "chart": Output(["timeline", "RUN", "--method", "fedavg", "--png", "OUT.png"]),
    "verify": Output(["verify", "RUN"]),
    "diagnose": Output(["diagnose", "RUN", "--method", "fedavg"]),
    "replay": Output(["replay", "RUN", "-o", "OUT", "--set", "network.topology.latency=9 ms"]),
    "plan": Output(["plan", "RUN/scenario.yaml"]),
    "data": Output(["data", "show", "RUN/scenario.yaml"]),
    "scenario": Output(["scenario", "validate", "RUN/scenario.yaml"]),
    "resume": Output(["simulate", "--resume", "INTERRUPTED"]),
    "interrupted": Output(["report", "INTERRUPTED"]),
    "faulted": Output(["report", "FAULTED", "--json"], readers.check_json),
    "faulted, resume": Output(["simulate", "--resume", "FAULTED"]),
    "more seeds": Output(["simulate", "RUN", "--add-seeds", "1"]),
    "seeds": Output(["plan", "RUN", "--seeds-for", "1pt"]),
    "sweep again": Output(SWEEP),
    "sweep": Output(["report", "SWEEP", "--format", "csv"], readers.check_csv),
    "sweep, page": Output(["report", "SWEEP", "--html", "OUT.html"]),
}
BY_KIND = {
    kind: [name for name, output in OUTPUTS.items() if any(word.split("/")[0] == kind for word in output.command)]
    for kind in ("RUN", "EMULATED", "INTERRUPTED", "FAULTED", "SWEEP")
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of each kind, whose files have every text that they can have."""
    top = tmp_path_factory.mktemp("texts")
    run(check(SCENARIO), out=top / "RUN")
    _complete(top / "RUN")
    assert main(["replay", str(top / "RUN"), "--sensitivity"]) == 0
    shutil.copytree(top / "RUN", top / "OTHER")
    shutil.copytree(top / "RUN", top / "EMULATED")
    measured = emulation.Emulation(
        dilation=2,
        compute="paced",
        queue="fair",
        wire_bytes=emulation.WireBytes(down=1, up=1),
        load=emulation.Load(**dict.fromkeys(emulation.Load.model_fields, 0.0)),
        trust=("the link was slow",),
        machine={"processor": "a processor"},
    )
    for label in ("fedavg", "br"):
        emulation.write_emulation(measured, top / "EMULATED" / label / "seed-0" / names.EMULATION)
    with suppress(KeyboardInterrupt):
        run(check({**SCENARIO, "seeds": [0, 1]}), out=top / "INTERRUPTED", listeners=[Stop(5)])
    _complete(top / "INTERRUPTED")
    with pytest.MonkeyPatch.context() as patched, suppress(RunsFailed):
        patched.setattr(FedProx, "loss", _no_loss)
        run(check({**SCENARIO, "methods": ["fedavg", "fedprox"], "keep_models": "none"}), out=top / "FAULTED")
    _complete(top / "FAULTED")
    (top / "BASIS.yaml").write_bytes((top / "RUN" / names.SCENARIO).read_bytes())
    assert main(_words(SWEEP, top, top)[0]) == 0
    for seed in (top / "SWEEP").rglob("seed-*"):
        (seed / names.STANDINGS).write_text(json.dumps(text_fields.completed(None, names.STANDINGS)))
    return top


def _no_loss(*_arguments: Any) -> Any:
    raise ZeroDivisionError


def _complete(run: Path) -> None:
    """Add to the files what they lack and what contains texts."""
    for file in run.rglob("*.json"):
        file.write_text(json.dumps(text_fields.completed(json.loads(file.read_text()), file.name)))


def test_the_runs_have_every_text_that_their_schemas_allow(runs):
    found: dict[str, set[Any]] = {}
    for place in (place for kind in BY_KIND for place in places(runs / kind)):
        found.setdefault(place.file.rpartition("/")[2], set()).add(place.path)
    for file in text_fields.DATA:
        expected = text_fields.texts_of(file)
        missing = {text for text in expected if not any(text_fields.fits(path, text) for path in found[file])}
        assert expected, file
        assert missing == set(), file
    for file in text_fields.TABLES:
        assert text_fields.columns_of(file) <= {path[0] for path in found[file]}, file


def test_each_file_of_a_run_directory_has_a_schema_or_no_texts_of_its_own():
    known = {*text_fields.DATA, *text_fields.TABLES, *text_fields.WITHOUT_SCHEMA}
    assert known == {*names.FILES, *names.SEED_FILES}


@pytest.fixture(scope="module")
def ordinary_pages(runs, tmp_path_factory):
    """The pages of these runs as they are, by output."""
    found = {}
    for name in ("page", "sweep, page"):
        with folder() as place:
            words, written = _words(OUTPUTS[name].command, runs, place)
            assert main(words) == 0
            found[name] = readers.Page(written.read_text(encoding="utf-8"))
    return found


def _words(command: list[str], runs: Path, place: Path) -> tuple[list[str], Path]:
    words = []
    for word in command:
        first, _, rest = word.partition("/")
        if first in ("BASIS.yaml", "OTHER", *BY_KIND):
            inside = place / first if (place / first).exists() else runs / first
            words.append(str(inside / rest))
        else:
            words.append(word.replace("OUT", str(place / "out")))
    return words, Path(words[-1])


def _content(path: Path) -> str | Path:
    return path if path.is_dir() else path.read_text(encoding="utf-8")


def _is_output(path: Path) -> bool:
    return path.name.startswith("out")


def shown(name: str, runs: Path, place: Path, pages: dict[str, readers.Page], capfd: Any, about: str) -> bool:
    """Whether an output is made of the changed runs in ``place``; it is read again. Else it was refused."""
    capfd.readouterr()
    words, written = _words(OUTPUTS[name].command, runs, place)
    code = main(words)
    printed = capfd.readouterr()
    try:
        readers.check_text(printed.out)
        readers.check_text(printed.err)
        assert "fault:" not in printed.err
        assert "Traceback" not in printed.err
        assert code in ((0, 1, 2) if name == "verify" else (0, 2))
        if code == 2:
            assert [line[:7] for line in printed.err.splitlines()].count("error: ") == 1
            assert not (_is_output(written) and written.exists())
            return False
        if code == 0:
            reader = OUTPUTS[name].reader
            if name in pages:
                readers.Page(written.read_text(encoding="utf-8")).check(pages[name])
            elif reader is not None:
                reader(_content(written) if _is_output(written) else printed.out)
    except (AssertionError, ValueError) as error:
        raise AssertionError(f"{' '.join(words)} with {about}: {code}\n{printed.err}") from error
    return code == 0


def changed(runs: Path, kind: str, place: Path, put_text: Callable[[Path], None]) -> bool:
    """Whether a copy of a run directory could be changed."""
    shutil.rmtree(place / kind, ignore_errors=True)
    shutil.copytree(runs / kind, place / kind)
    try:
        put_text(place / kind)
    except (ValueError, OSError):  # no such text fits into the file
        return False
    return True


@pytest.mark.parametrize("number", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_text_in_any_place_is_shown_as_text(number, runs, ordinary_pages, capfd):
    known = {kind: places(runs / kind) for kind in BY_KIND}

    @cases(number)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(sorted(BY_KIND)))
        found, text = data.draw(st.sampled_from(known[kind])), data.draw(HOSTILE)
        with folder() as place:
            if changed(runs, kind, place, lambda copied: put(copied, found, text)):
                output = data.draw(st.sampled_from(BY_KIND[kind]))
                shown(output, runs, place, ordinary_pages, capfd, f"{text!r} in {found}")

    each()


FREE = ("name", "description", "message", "source", "processor", "trust", "fedbr", "unit", "comment", "version")
"""Keys whose values, in some file, edgefl shows and does not interpret."""


@pytest.mark.parametrize("number", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_texts_in_many_places_at_once_are_shown_as_text(number, runs, ordinary_pages, capfd):
    known = {kind: places(runs / kind) for kind in BY_KIND}

    @cases(number)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(sorted(BY_KIND)))
        free = [place for place in known[kind] if place.path[-1] in FREE]
        chosen = data.draw(st.sampled_from([known[kind], free]).flatmap(lambda each: st.lists(st.sampled_from(each))))
        texts = [data.draw(HOSTILE) for _ in chosen]

        def put_all(copied: Path) -> None:
            for found, text in zip(chosen, texts, strict=True):
                with suppress(KeyError, TypeError, IndexError):  # the text before is now the key above this place
                    put(copied, found, text)

        with folder() as place:
            if changed(runs, kind, place, put_all):
                output = data.draw(st.sampled_from(BY_KIND[kind]))
                about = "; ".join(f"{text!r} in {found}" for found, text in zip(chosen, texts, strict=True))
                shown(output, runs, place, ordinary_pages, capfd, about)

    each()


@pytest.mark.parametrize("number", [15, pytest.param(500, marks=pytest.mark.slow)])
def test_a_label_is_refused_or_shown_as_text(number, runs, capfd):
    codes = set()

    @cases(number)
    @given(st.from_regex(LABEL_PATTERN, fullmatch=True) | HOSTILE, st.sampled_from(list(_report("table", "RUN"))))
    def each(label: str, output: str) -> None:
        scenario = {**SCENARIO, "methods": [{"method": "fedavg", "as": label}, "fedbr"], "keep_models": "none"}
        with folder() as place:
            file = place / "scenario.yaml"
            file.write_text(dump_yaml(scenario), encoding="utf-8")
            capfd.readouterr()
            codes.add(code := main(["simulate", str(file), "--no-train", "--out", str(place / "RUN")]))
            printed = capfd.readouterr()
            assert "fault:" not in printed.err, label
            readers.check_text(printed.out + printed.err)
            if code == 2:
                assert printed.err.startswith("error: "), label
                assert not (place / "RUN").exists()
            else:
                assert shown(output, runs, place, {}, capfd, f"the label {label!r}")

    each()
    assert codes == {0, 2}


IN_UTF_8 = HOSTILE.map(lambda text: text.replace("\ud800", ""))
"""What the metadata of a package can contain."""
LISTS = [["methods"], ["methods", "NAME"], ["methods", "--json"], ["models"], ["datasets", "--json"]]


@pytest.mark.parametrize("number", [30, pytest.param(500, marks=pytest.mark.slow)])
def test_a_name_of_a_plug_in_is_listed_as_text(number, capfd, monkeypatch):
    families = {METHODS: "edgefl.methods", MODELS: "edgefl.models", DATA_SETS: "edgefl.datasets"}
    recipe = METHODS["fedavg"]

    @cases(number)
    @given(IN_UTF_8, IN_UTF_8, st.sampled_from([True, True, False]), st.sampled_from(LISTS))
    def each(name: str, text: str, sound: bool, command: list[str]) -> None:
        with monkeypatch.context() as patched:
            for family, group in families.items():
                plug_ins = PlugIns(family.noun, group)
                plug_ins._points = {name: [EntryPoint(name, f"{text}:Part", group)]}
                if sound and family is METHODS:
                    plug_ins._loaded[name] = replace(recipe, summary=text, paper=text)
                patched.setattr(family, "_plug_ins", plug_ins)
                patched.setattr(family, "_parts", dict(family._parts))
            capfd.readouterr()
            code = main([word.replace("NAME", name) for word in command])
        printed = capfd.readouterr()
        about = f"{command} of {name!r} with {text!r}: {code}\n{printed.out}{printed.err}"
        assert "fault:" not in printed.err, about
        assert readers.CONTROL.findall(printed.out + printed.err) == [], about
        assert code in (0, 2), about
        assert code == 0 or printed.err.startswith("error: "), about
        if "--json" in command and code == 0:
            listed = readers.check_json(printed.out)[command[0]]
            assert (name in [row["name"] for row in listed]) == (sound and command[0] == "methods"), about

    each()

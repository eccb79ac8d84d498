"""Arguments from Python: wrong ones are refused, and a folder that has a run already is used as they say."""

import os
import sys

import pytest

import edgefl
from edgefl.errors import UserError

WRONG = {
    "scenario": "no_such_scenario",
    "out": "taken",
    "overrides": ["training.rounds"],
    "methods": ["unknown"],
    "device": "gpu",
    "engine": "fast",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_and_nothing_is_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    arguments = {"scenario": "5g_100clients", "out": "run", "train": False, name: WRONG[name]}
    with pytest.raises(UserError, match=f"{name}: |unknown|no_such_scenario|PATH=VALUE|taken|engine"):
        edgefl.simulate(arguments.pop("scenario"), **arguments)
    assert os.listdir(tmp_path) == ["taken"]


FEW = {"overrides": {"training.rounds": 2, "seeds": [0]}, "methods": ["fedavg"], "train": False}


class Stop(edgefl.Listener):
    def round_ended(self, row):
        raise KeyboardInterrupt


def test_a_second_call_returns_the_run_continues_it_or_replaces_it(tmp_path):
    said = []
    first = edgefl.simulate("5g_10clients", out=tmp_path / "run", progress=said.append, **FEW)
    assert said[0] == "1 run of at most 2 rounds"
    written = first.paths.summary.stat().st_mtime_ns
    assert edgefl.simulate("5g_10clients", out=tmp_path / "run", progress=said.append, **FEW).summary == first.summary
    assert first.paths.summary.stat().st_mtime_ns == written
    with pytest.raises(KeyboardInterrupt):
        edgefl.simulate("5g_10clients", out=tmp_path / "stopped", listeners=[Stop()], **FEW)
    resumed = edgefl.simulate("5g_10clients", out=tmp_path / "stopped", **FEW)
    assert resumed.paths.summary.read_bytes() == first.paths.summary.read_bytes()
    other = {**FEW, "overrides": {"training.rounds": 1, "seeds": [0]}}
    for changed in (other, {**FEW, "methods": ["fedadc"]}, {**FEW, "resume": False}):
        with pytest.raises(UserError, match="already contains a run; choose another folder, or write overwrite=True"):
            edgefl.simulate("5g_10clients", out=tmp_path / "run", **changed)
    assert edgefl.simulate("5g_10clients", out=tmp_path / "run", overwrite=True, **other).rounds.num_rows == 1
    (tmp_path / "run" / "page.html").write_text("mine")
    with pytest.raises(UserError, match=r"other files than the run's, such as page\.html"):
        edgefl.simulate("5g_10clients", out=tmp_path / "run", overwrite=True, **FEW)
    assert edgefl.open_run(tmp_path / "run").rounds.num_rows == 1


def test_without_a_folder_a_run_stays_for_the_session():
    run = edgefl.simulate("5g_10clients", **FEW)
    assert run.path.is_dir()
    assert run.path != edgefl.simulate("5g_10clients", **FEW).path


def test_a_run_with_changed_data_is_not_returned(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{n},{n % 2}\n" for n in range(100)))
    data = {"name": "table", "train": str(tmp_path / "t.csv"), "target": "y", "clients": 10}
    given = {**FEW, "overrides": {**FEW["overrides"], "data": data, "model": "mlp"}, "out": tmp_path / "run"}
    edgefl.simulate("5g_10clients", **given)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{n},{n % 2}\n" for n in range(1, 101)))
    with pytest.raises(UserError, match="has changed since the run began"):
        edgefl.simulate("5g_10clients", **given)


def test_a_notebook_shows_one_line_the_table_and_the_picture(monkeypatch, tmp_path):
    class OutStream:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

        def isatty(self):
            return False

    OutStream.__module__ = "ipykernel.iostream"
    monkeypatch.setattr(sys, "stdout", stream := OutStream())
    run = edgefl.simulate("5g_10clients", **{**FEW, "train": True})
    assert "\rrun 1/1  fedavg, seed 0" in stream.text
    assert "\x1b" not in stream.text
    assert "<td>fedavg</td>" in run._repr_html_()
    assert 'src="data:image/png;base64,iVBOR' in run._repr_html_()

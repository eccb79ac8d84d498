"""The listeners that docs/extending.md shows write every round, where the real package is installed."""

import math

import pytest

import edgefl

from .test_plug_ins import blocks

FEW = {"overrides": {"training.rounds": 2, "seeds": [0], "methods": ["fedavg", "fedadc"]}}


@pytest.fixture
def run_with(tmp_path, monkeypatch):
    """Run what a page shows as a file with this name; returns the metric of each round of fedadc."""
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments, **options):
        (code,) = [block for block in blocks("extending.md", "python") if block.startswith(f"# to_{name}.py")]
        assert len([line for line in code.splitlines()[1:] if line.strip() and "import" not in line]) <= 20
        namespace = {}
        exec(code, namespace)
        (listener,) = [each for key, each in namespace.items() if key.startswith("To")]
        ran = edgefl.simulate("5g_10clients", listeners=[listener(*arguments, **options)], **FEW)
        assert not math.isnan(ran.columns_of("fedadc", 0)["metric"][-1])
        return ran.columns_of("fedadc", 0)

    return run


def test_tensorboard_gets_every_round(run_with):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    columns = run_with("tensorboard", "logs")
    found = EventAccumulator("logs/fedadc/seed-0").Reload()
    for name in ("metric", "joules"):
        assert [each.value for each in found.Scalars(name)] == pytest.approx(columns[name].tolist(), rel=1e-6)


def test_mlflow_gets_every_round(run_with, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    columns = run_with("mlflow")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    runs = {each.data.params["method"]: each for each in client.search_runs(["0"])}
    assert set(runs) == {"fedavg", "fedadc"}
    history = client.get_metric_history(runs["fedadc"].info.run_id, "metric")
    assert [(each.step, each.value) for each in history] == list(enumerate(columns["metric"].tolist(), 1))


def test_wandb_gets_every_round_offline(run_with, tmp_path):
    wandb = pytest.importorskip("wandb")
    columns = run_with("wandb", "edgefl", mode="offline", dir=str(tmp_path))
    from wandb.proto.wandb_internal_pb2 import Record

    newest = max(tmp_path.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    history = [item for text in records(newest.read_bytes()) for item in Record.FromString(text).history.item]
    values = [float(item.value_json) for item in history if "metric" in (item.key, *item.nested_key)]
    assert values == pytest.approx(columns["metric"].tolist()), wandb.__version__


def records(log):
    """The records of a log of LevelDB, whose blocks have 32 KiB, after the file's own header of 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(log):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(log[place + 4 : place + 6], "little"), log[place + 6]
        parts += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""

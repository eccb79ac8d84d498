"""Whole runs of other tasks than classification."""

import json
from functools import cache, partial

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from edgefl.cli import main
from edgefl.data.federated import load_federated
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.report import RunResult, comparison, verdict
from edgefl.report.page.sections import page
from edgefl.report.pictures import accuracy_figure
from edgefl.rerun.inverse import ask
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, replay

DRAWS = np.random.default_rng(3)
INPUTS = DRAWS.standard_normal((240, 6)).astype(np.float32)
WEIGHTS = DRAWS.standard_normal((6, 2))
KINDS = {
    "regression": (INPUTS, (INPUTS @ WEIGHTS + 3).astype(np.float32), {"metric": "rmse", "at_most": 2.0}),
    "multilabel": (INPUTS, (INPUTS @ WEIGHTS > 0).astype(np.int8), {"metric": "macro_f1", "at_least": 0.5}),
    "language_model": (
        np.tile(np.arange(8), (240, 1)) % 5, np.tile(np.arange(1, 9), (240, 1)) % 5,
        {"metric": "perplexity", "at_most": 4.0},
    ),
}  # fmt: skip


def scenario_in(folder, kind, **changes):
    """The scenario of a task, with changes."""
    x, y, target = KINDS[kind]
    np.savez(folder / "data.npz", x=x, y=y, client=np.arange(len(x)) % 10)
    model = {"name": "mlp", "widths": [8]}
    if kind == "language_model":
        model = {"name": "char_transformer", "width": 8, "heads": 2, "layers": 1}
    whole = {
        **SMALL, "task": kind, "model": model, "targets": [target], "methods": ["fedavg", "scaffold"],
        "data": {"name": "arrays", "train": "data.npz", "clients": 10, "partition": {"kind": "natural"}},
    }  # fmt: skip
    whole["training"] = {"rounds": 4, "cohort": 5, "local": {"epochs": 3, "batch": 8, "lr": 0.05}}
    (folder / "my.yaml").write_text(dump_yaml(whole))
    return load_scenario(folder / "my.yaml", {key.replace("__", "."): value for key, value in changes.items()})


@pytest.fixture
def scenario(tmp_path):
    return partial(scenario_in, tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The finished run of a task, made once; nobody writes into it."""

    @cache
    def make(kind):
        folder = tmp_path_factory.mktemp(kind)
        return run(scenario_in(folder, kind, keep_models="server"), out=folder / "run")

    return make


def entry_of(folder, label="fedavg"):
    return json.loads((folder / "summary.json").read_text())["methods"][label][0]


FULL = [pytest.param(kind, marks=pytest.mark.full) for kind in ("multilabel", "language_model")]


@pytest.mark.parametrize("kind", ["regression", *FULL])
def test_a_run_learns_is_verified_and_reported_in_its_metric(finished, kind):
    folder = finished(kind)
    entry, rounds = entry_of(folder), pq.read_table(folder / "fedavg/seed-0/rounds.parquet").to_pydict()
    metric, values = entry["metric"], rounds["metric"]
    lower = metric["better"] == "lower"
    assert (metric["final"], metric["best"]) == (values[-1], (min if lower else max)(values))
    assert (values[-1] < values[0]) == lower
    assert entry["accuracy"] == {"final": None, "best": None, "ema": None}
    assert rounds["accuracy"] == [None] * 4
    goal = entry["targets"][0]["value"]
    reached = [number for number, value in zip(rounds["round"], values, strict=True) if (value <= goal) == lower]
    assert entry["targets"][0]["rounds"] == reached[0]
    assert verify(folder) == []
    result, word = RunResult(folder), {"macro_f1": "macro-F1", "rmse": "RMSE"}.get(metric["name"], metric["name"])
    assert comparison(result).data["rows"][0]["metric"]["final"]["mean"] == pytest.approx(metric["final"])
    sentences = verdict(result)
    best = (min if lower else max)(("fedavg", "scaffold"), key=lambda label: entry_of(folder, label)["metric"]["final"])
    assert sentences.startswith(f"Best after 4 rounds:  {best}  ")
    assert f"{word[:1].upper()}{word[1:]}" in page([result])
    assert word in accuracy_figure([result]).axes[0].get_ylabel()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "changes", "counts"),
    [  # a fifth of 240 samples, of the last one's eight labels each, and a tenth of the other 192
        ("regression", {}, (48, 96)),
        ("multilabel", {"data__test": "partitioned"}, (48, 96)),
        ("language_model", {}, (48, 8 * 48)),
        ("language_model", {"evaluation__split": "validation"}, (19, 8 * 19)),
    ],
)
def test_the_summary_counts_the_labels_that_the_metric_counts(scenario, tmp_path, kind, changes, counts):
    folder = run(scenario(kind, training__rounds=1, **changes), out=tmp_path / "run", methods=["fedavg"])
    replayed = replay(folder, {"network.topology.latency": "30 ms"}, tmp_path / "replay")
    for each in (folder, replayed):
        assert (entry_of(each)["metric"]["samples"], entry_of(each)["metric"]["labels"]) == counts
        assert verify(each) == []


@pytest.mark.full
def test_places_that_do_not_count_are_no_labels_of_the_summary(scenario, tmp_path, monkeypatch):
    """Of the eight places of a sequence the last three are padded: a share of five tokens a sample, not of eight."""
    x, y, target = KINDS["language_model"]
    padded = x, np.where(np.arange(8) < 5, y, -100), target
    monkeypatch.setitem(KINDS, "language_model", padded)
    made = scenario(
        "language_model", training__rounds=1, task={"kind": "language_model", "metric": "accuracy"}, targets=[]
    )
    folder = run(made, out=tmp_path / "run", methods=["fedavg"])
    assert (entry_of(folder)["metric"]["samples"], entry_of(folder)["metric"]["labels"]) == (48, 240)
    share = entry_of(folder)["accuracy"]["final"]
    assert RunResult(folder).scatter["fedavg"] == pytest.approx((share * (1 - share) / 240) ** 0.5)
    assert (share * 240) == pytest.approx(round(share * 240))


def test_the_last_model_has_the_metric_that_plain_pytorch_computes(finished):
    folder = finished("regression")
    data = load_scenario(folder / "scenario.yaml").data
    tensors, test = load_file(folder / "fedavg/seed-0/final.safetensors"), load_federated(data, 0).test
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    biases, matrices = ([each for _, each in sorted(tensors.items()) if each.dim() == sides] for sides in (1, 2))
    values = [each for pair in zip(matrices, biases, strict=True) for each in pair]
    net.load_state_dict(dict(zip(net.state_dict(), values, strict=True)))
    with torch.no_grad():
        error = (net(test.inputs) - test.labels).double()
    assert entry_of(folder)["metric"]["final"] == pytest.approx(float((error**2).mean().sqrt()), rel=1e-5)
    assert entry_of(folder)["metric"]["name"] == "rmse"


def test_clients_have_the_metric_of_their_own_tests(scenario, tmp_path):
    folder = run(scenario("regression", data__test="partitioned"), out=tmp_path / "run", methods=["fedavg"])
    entry, rows = entry_of(folder), pq.read_table(folder / "fedavg/seed-0/clients.parquet").to_pydict()
    known = sorted(rows["metric"])
    assert entry["clients"]["mean"] == pytest.approx(np.mean(known))
    assert entry["clients"]["worst_tenth"] == known[-1]
    assert entry["clients"]["cumulative"] == pytest.approx(entry["metric"]["final"])
    assert rows["accuracy"] == [None] * 10
    result = RunResult(folder)
    assert "RMSE on each client&#39;s own test part" in page([result])
    (whole, *_) = comparison(result, detailed=True).more
    assert whole.heads[1:4] == ["mean of clients", "worst tenth of clients", "all clients' samples"]


NAMES = {
    "fedmlb": "FedMLB", "fedbr": "FedBR", "fedgkd": "FedGKD", "fedrs": "FedRS", "kd": "KnowledgeDistillation",
    "ntd": "NotTrueDistillation", "fedadc+": "SelfConfidence", "gradaug": "GradAug",
}  # fmt: skip
OF_TOKENS = ("fedmlb", "fedbr", "fedgkd", "kd")


@pytest.mark.parametrize("method", NAMES)
def test_methods_that_compare_classes_refuse_other_tasks_by_name(scenario, tmp_path, method):
    of = "classes or tokens" if method in OF_TOKENS else "one class for each sample"
    with pytest.raises(UserError, match=f"{NAMES[method]} needs predictions of {of}, and task"):
        run(scenario("multilabel", methods=[method]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", [pytest.param("moon", marks=pytest.mark.full), "fitnet"])
def test_methods_that_compare_features_of_a_sample_refuse_sequences_of_them(scenario, tmp_path, method):
    with pytest.raises(UserError, match="needs one vector of features for each sample"):
        run(scenario("language_model", methods=[method]), out=tmp_path / "run")
    run(scenario("regression", methods=[method], training__rounds=1), out=tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": [0.5]}, r"targets\.0: a number is a share of accuracy, and the task's metric is rmse"),
        ({"targets": [{"metric": "mae", "at_most": 1}]}, r"targets\.0\.metric: expected rmse, the task's metric"),
        ({"targets": [{"metric": "rmse", "at_least": 1}]}, r"expected at_most, because lower values of rmse"),
        ({"targets": [{"metric": "rmse"}]}, "expected either at_least or at_most"),
        ({"targets": [{"metric": "rmse", "at_most": 0}]}, r"targets\.0"),
        ({"training.selection": "coverage"}, r"training\.selection\.kind: selection 'coverage' needs predictions"),
        ({"data.partition": {"kind": "dirichlet", "alpha": 1}}, r"data\.partition\.kind: divides the samples by class"),
        ({"data.partition": {"kind": "label_level", "level": 2}}, "and task 'regression' has none"),
    ],
)
def test_what_does_not_fit_the_task_is_refused_with_its_field(scenario, changes, message):
    with pytest.raises(UserError, match=message):
        scenario("regression", **{key.replace(".", "__"): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("regresion", r"task\.kind: unknown task 'regresion'; did you mean 'regression'"),
        ({"kind": "regression", "metric": "mea"}, r"task\.metric: unknown choice 'mea'"),
        ({"metric": "rmse"}, r"task\.kind: this key is missing"),
        (3, "task: expected the name of a task or a mapping with the key kind, found 3"),
    ],
)
def test_a_task_that_is_none_is_refused_with_its_field(small, task, message):
    with pytest.raises(UserError, match=message):
        small(task=task)


def test_a_model_without_an_output_for_each_place_is_no_language_model(scenario, tmp_path):
    with pytest.raises(UserError, match=r"task 'language_model' needs a model that returns \[8, 5\] for each sample"):
        run(scenario("language_model", model={"name": "mlp", "widths": [4]}), out=tmp_path / "run")


def test_labels_that_are_no_labels_of_the_task_are_named(scenario, tmp_path, capsys):
    scenario("regression")
    assert main(["simulate", str(tmp_path / "my.yaml"), "--set", "task=multilabel", "--set", "targets=null"]) == 2
    assert "expected 0 or 1 for each label in 'y', found" in capsys.readouterr().err


def test_a_task_that_has_other_labels_than_classes_refuses_data_of_classes_by_its_name(small, tmp_path):
    with pytest.raises(UserError, match=r"task: .* found multilabel"):
        run(small(task="multilabel", data={"name": "digits", "clients": 8}, targets=None), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_token_of_the_test_data_alone_is_an_output_unless_data_classes_says_less(scenario, tmp_path):
    data = scenario("language_model").data
    x, y, _ = KINDS["language_model"]
    np.savez(tmp_path / "test.npz", x=x[:20], y=np.where(y[:20] == 4, 6, y[:20]))
    with_test = {"data__test": str(tmp_path / "test.npz")}
    assert data.describe().classes == 5
    assert scenario("language_model", **with_test).data.describe().classes == 7
    assert load_federated(scenario("language_model", **with_test).data, 0).classes == 7
    stated = scenario("language_model", **with_test, data__classes=5).data
    with pytest.raises(UserError, match="expected test labels from 0 to 4, found 6"):
        stated.describe()


def test_test_data_with_more_numbers_in_a_label_are_refused(scenario, tmp_path):
    x, y, _ = KINDS["regression"]
    np.savez(tmp_path / "test.npz", x=x[:20], y=np.hstack([y[:20], y[:20, :1]]))
    data = scenario("regression", data__test=str(tmp_path / "test.npz")).data
    message = r"test\.npz: expected test labels of the shape \[2\] for each sample, found \[3\]"
    with pytest.raises(UserError, match=message):
        data.describe()


@pytest.mark.full
def test_runs_with_different_metrics_are_not_compared(finished, capsys):
    folders = [finished(kind) for kind in ("regression", "multilabel")]
    assert main(["report", *map(str, folders)]) == 2
    assert "expected runs with the same metric, found macro_f1 and rmse" in capsys.readouterr().err


@pytest.mark.full
def test_a_sweep_chooses_the_least_error(scenario, tmp_path, capsys):
    scenario("regression", evaluation__split="validation")
    asked = ["sweep", str(tmp_path / "my.yaml"), "--grid", "training.local.lr=0.0001,0.05", "--choose", "accuracy"]
    asked += ["--set", "evaluation.split=validation", "--method", "fedavg", "--out", str(tmp_path / "sweep")]
    assert main(asked) == 0
    assert "fedavg: training.local.lr=0.05 (" in capsys.readouterr().out


@pytest.mark.full
def test_clients_without_a_counted_place_are_not_tested(scenario, tmp_path):
    made = scenario("language_model")
    arrays = dict(np.load(tmp_path / "data.npz"))
    labels = np.where(arrays["client"][:, None] == 3, -100, arrays["y"])
    np.savez(tmp_path / "data.npz", x=arrays["x"], y=labels, client=arrays["client"])
    made = load_scenario(tmp_path / "my.yaml", {"data.test": "partitioned", "training.cohort": 10})
    folder = run(made, out=tmp_path / "run", methods=["fedavg"])
    rows = pq.read_table(folder / "fedavg/seed-0/clients.parquet").to_pydict()
    assert [number for number, value in zip(rows["client"], rows["metric"], strict=True) if value is None] == [3]
    assert entry_of(folder)["clients"]["mean"] == pytest.approx(np.mean([each for each in rows["metric"] if each]))
    assert verify(folder) == []


def test_a_regression_that_overflows_has_the_worst_error(scenario, tmp_path):
    folder = run(scenario("regression", training__local__lr=30.0), out=tmp_path / "run", methods=["fedavg"])
    entry = entry_of(folder)
    assert entry["stop"]["reason"] == "diverged" or entry["metric"]["final"] > 1e6
    assert verify(folder) == []


@pytest.mark.full
def test_a_finished_run_is_asked_for_its_own_metric(finished):
    """The root mean squared error is reached from above."""
    folder = finished("regression")
    rows = pq.read_table(folder / "fedavg" / "seed-0" / "rounds.parquet").to_pydict()
    last, seconds = rows["metric"][-1], rows["seconds"][-1]
    assert min(rows["metric"][:-1]) > last
    found = ask(folder, f"rmse={last} within {2 * seconds} s", methods=["fedavg"])["methods"][0]
    assert found["spent"]["seconds"] == seconds
    assert 0 < found["answers"]["bandwidth"]["met"] < 1
    with pytest.raises(UserError, match="expected rmse, the task's metric, found accuracy"):
        ask(folder, "accuracy=0.5 within 1h")

"""No job is trained twice in a run directory, and nothing that is found differs from what would be trained."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import PrivateAttr

from edgefl.experiment import run
from edgefl.experiment.run import resume
from edgefl.methods.build import build_method
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.feddyn import FedDyn
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training import sequential
from edgefl.training.base import JobResult, JobTask
from edgefl.training.job import Evaluation
from edgefl.training.local_training import train_job
from edgefl.training.result_memory import ResultMemory, signature

from ..small_runs import Stop

TWINS = [
    {"method": "fedadc", "overlap": True, "as": "with"},
    {"method": "fedadc", "overlap": False, "as": "without"},
]


@pytest.fixture
def trained(monkeypatch):
    """The jobs that are trained, as they are trained."""
    seen = []

    def counting(task, *others, **options):
        seen.append((task.client, task.dispatch))
        return train_job(task, *others, **options)

    monkeypatch.setattr(sequential, "train_job", counting)
    return seen


def test_overlap_on_and_off_train_once_and_report_what_they_do_without_a_memory(small, tmp_path, trained):
    scenario = small(methods=TWINS)
    run(scenario, out=tmp_path / "shared", engine="sequential")
    assert len(trained) == 4 * 3
    run(scenario, out=tmp_path / "apart", engine="sequential", cache=False)
    assert len(trained) == 4 * 3 + 2 * 4 * 3
    for name in ("summary.json", "without/seed-0/events.parquet", "with/seed-0/events.parquet"):
        assert (tmp_path / "shared" / name).read_bytes() == (tmp_path / "apart" / name).read_bytes()
    assert not (tmp_path / "shared" / "results").exists()


@pytest.mark.full
def test_a_resumed_run_trains_nothing_again_though_no_checkpoint_was_reached(small, tmp_path, trained):
    with pytest.raises(KeyboardInterrupt):
        run(small(methods=TWINS), out=tmp_path / "run", engine="sequential", listeners=[Stop(3)])
    resume(tmp_path / "run")
    assert len(trained) == len(set(trained)) == 4 * 3


@pytest.fixture
def task():
    method = build_method("fedprox", LocalOptions(batch=4, lr=0.1))
    return JobTask("a", 0, 1, 2, 3, method.objective, method.rule, method.local, 0.1, 5, 4, torch.arange(4.0))


def test_the_signature_sees_all_that_a_result_depends_on(task):
    other = build_method({"method": "fedprox", "mu": 0.5}, LocalOptions(batch=8, lr=0.1))
    changes = [
        {"seed": 1}, {"client": 0}, {"dispatch": 0}, {"lr": 0.1 + 1e-16}, {"steps": 4}, {"alpha": 3},
        {"objective": other.objective}, {"options": other.local}, {"start": torch.tensor([0.0, 1, 2, 3.0001])},
        {"start": torch.arange(4.0).double()}, {"frozen": {"previous": torch.zeros(4)}},
        {"vectors": {"previous": torch.zeros(4)}}, {"facts": {"label_counts": torch.zeros(4)}},
    ]  # fmt: skip
    keys = [signature(replace(task, **change), "m", {}) for change in changes]
    assert len({signature(task, "m", {}), signature(task, "n", {}), *keys}) == len(changes) + 2
    assert signature(replace(task, method="b", round=9, start=task.start.clone()), "m", {}) == signature(task, "m", {})


class Louder(CrossEntropy):
    """A loss of a plug-in, without options."""


class Counting(CrossEntropy):
    """A loss that holds what its options do not say."""

    _seen: int = PrivateAttr(default=0)


def test_the_signature_tells_losses_apart_that_another_one_stands_on(task):
    keys = [signature(replace(task, objective=FedDyn(base=base())), "m", {}) for base in (CrossEntropy, Louder)]
    assert len({*keys, signature(replace(task, objective=Louder()), "m", {})}) == 3
    for objective in (Counting(), FedDyn(base=Counting())):
        assert signature(replace(task, objective=objective), "m", {}) is None


def test_a_damaged_result_counts_as_unknown_and_the_limit_holds(tmp_path):
    result = JobResult(torch.arange(3.0), torch.ones(2), (4, 2), {"c": torch.zeros(3)})
    memory = ResultMemory(tmp_path)
    memory.put("key", result)
    found = memory.get("key", torch.device("cpu"))
    assert torch.equal(found.final, result.final)
    assert (found.batch_sizes, list(found.kept)) == ((4, 2), ["c"])
    content = (tmp_path / "key").read_bytes()
    (tmp_path / "key").write_bytes(content[:-1] + b"x")
    assert memory.get("key", torch.device("cpu")) is None
    full = ResultMemory(tmp_path, limit=10)
    full.put("other", result)
    assert full.get("other", torch.device("cpu")) is None


def test_an_evaluation_is_found_to_the_bit_and_an_incomplete_one_counts_as_unknown(tmp_path):
    memory, found = ResultMemory(tmp_path), Evaluation(1 / 3, float("nan"))
    assert memory.evaluation("key") is None
    memory.keep_evaluation("key", found)
    again = memory.evaluation("key")
    assert again.metric == 1 / 3
    assert math.isnan(again.loss)
    content = (tmp_path / "key").read_bytes()
    for length in range(len(content)):
        (tmp_path / "key").write_bytes(content[:length])
        assert memory.evaluation("key") is None

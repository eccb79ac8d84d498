"""Whoever writes into the server's model between two aggregations is noticed by its digest in the log."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from edgefl.diagnosis.diagnose import diagnose
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify


def written(path, *kinds):
    rows = pq.read_table(path / "fedavg" / "seed-0" / "events.parquet").to_pylist()
    return [json.loads(row["detail"]) for row in rows if row["kind"] in kinds]


def test_a_log_names_every_model_and_the_last_one_is_the_file(small, tmp_path):
    folder = run(small(evaluation={"every": 2}), out=tmp_path / "run")
    models = [found["model"] for found in written(folder, "run", "aggregation")]
    assert len(set(models)) == 5
    assert [found["before"] for found in written(folder, "aggregation")] == models[:-1]
    assert [found["model"] for found in written(folder, "evaluation")] == models[2::2]
    assert verify(folder) == []
    assert written(replay(folder, {"network.topology.latency": "9 ms"}, tmp_path / "near"), "aggregation") == written(
        folder, "aggregation"
    )

    file = folder / "fedavg" / "seed-0" / "final.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-3
    save_file(tensors, file)
    assert verify(folder) == ["fedavg, seed 0: final.safetensors is not the model from the last aggregation"]


def transposed(tensors):
    name = next(name for name, tensor in tensors.items() if tensor.dim() == 2 and len(set(tensor.shape)) == 2)
    tensors[name] = tensors[name].T.contiguous()
    return name


def missing(tensors):
    name = sorted(tensors)[0]
    del tensors[name]
    return name


@pytest.mark.full
@pytest.mark.parametrize("damage", [transposed, missing])
def test_weights_that_are_not_the_models_are_refused_and_named(small, tmp_path, damage):
    folder = run(small(training__rounds=1), out=tmp_path / "run")
    file = folder / "fedavg" / "seed-0" / "final.safetensors"
    tensors = load_file(file)
    field = damage(tensors)
    save_file(tensors, file)
    with pytest.raises(UserError) as refused:
        list(diagnose(folder, batches=1, device="cpu"))
    assert (refused.value.file, refused.value.field) == (str(file), field)

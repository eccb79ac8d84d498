"""Training on a server is plain training on all data, takes its device's seconds, and is only a baseline."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.experiment import run
from edgefl.experiment.wiring import step_costs
from edgefl.fleet import load_profile, step_seconds, training_watts
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.planning.planning import plan
from edgefl.record.sensitivity import OWN
from edgefl.report import RunResult
from edgefl.report.page.sections import page
from edgefl.report.page.series import compared_series, series_of
from edgefl.report.sensitivity import read_sensitivity
from edgefl.report.timeline.data import read_timeline
from edgefl.report.timeline.usage import bottlenecks_of
from edgefl.rerun.replay import write_sensitivity
from edgefl.rerun.verify import verify
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob

from ..small_runs import replay
from .test_optimizers import DoubleData

ROUNDS = 3


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_it_is_plain_training_on_the_data_of_all_clients(monkeypatch, optimizer):
    data = load_federated(Synthetic(shape=(1, 8, 8), classes=3, train=60, test=12, clients=4), seed=0)
    model = build_model(MODELS["cnn"](width=2), data.shape, data.classes)
    start, momentum = initial_vector(model, 0).double(), 0.9 if optimizer == "sgd" else 0.0
    local = LocalOptions(optimizer=optimizer, batch=16, lr=0.02, momentum=momentum, weight_decay=0.05)
    monkeypatch.setattr("edgefl.training.core.initial_vector", lambda *_: start.clone())
    samples = len(data.train)
    with TrainingCore(DoubleData(data), model, 0, engine="sequential") as core:
        learner, last = core.learner(build_method("central", local)), None
        for round in range(ROUNDS):
            job = JobId("central", 0, 0, round)
            learner.submit(TrainingJob(job, round, round, model.depth, local.steps_for(samples), last))
            last = learner.aggregate(round, [job], round) and job
        found = learner.model(ROUNDS)
    entries = model.layout.parameters
    leaves = [nn.Parameter(each.view(start[each.start : each.start + each.numel]).clone()) for each in entries]
    kind, options = (torch.optim.SGD, {"momentum": 0.9}) if momentum else (torch.optim.AdamW, {})
    optimiser = kind(leaves, lr=0.02, weight_decay=0.05, **options)
    everything = torch.arange(samples).numpy()
    for round in range(ROUNDS):
        batches = job_batches(
            data.train, data.augment, everything, local, local.steps_for(samples), seed=0, client=0, dispatch=round
        )
        for batch in batches.in_turn():
            weights = tuple({} for _ in model.layout.block_names)
            for each, leaf in zip(entries, leaves, strict=True):
                weights[each.block][each.name] = leaf
            optimiser.zero_grad()
            nn.functional.cross_entropy(model.apply_blocks(weights, batch.inputs.double()), batch.labels).backward()
            optimiser.step()
    wanted = torch.cat([each.flat(leaf.detach()) for each, leaf in zip(entries, leaves, strict=True)])
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


CENTRAL = {"method": "central", "profile": "raspberry-pi-4", "local": {"epochs": 2, "batch": 32}}


def test_its_seconds_and_joules_are_those_of_its_profile(small, tmp_path):
    scenario = small(methods=["fedavg", CENTRAL], seeds=[0, 1], training__rounds=ROUNDS)
    folder = run(scenario, out=tmp_path / "run")
    profile, costs = load_profile("raspberry-pi-4"), step_costs(scenario, ["central"])["central"]
    seconds = ROUNDS * 20 * step_seconds(profile, costs.step(costs.model.depth, 32).operators)
    result = RunResult(folder)
    for each in result.results["central"]:
        assert each.seconds == pytest.approx(seconds, rel=1e-9)
        assert each.joules == pytest.approx(training_watts(profile, seconds, 0.0, 0.0) * seconds, rel=1e-9)
        assert (each.bytes.down, each.bytes.up, each.rounds) == (0, 0, ROUNDS)
    (device,) = plan(scenario).methods[1].devices
    assert (device.device, device.clients) == ("raspberry-pi-4", 1)
    assert device.compute_seconds.nominal * ROUNDS == pytest.approx(seconds, rel=1e-9)
    assert verify(folder) == []
    assert result.baselines == ["central"]
    written = page([result])
    assert "Baselines, not compared: central" in written
    assert '"names":["fedavg"]' in written  # of the sliders
    assert [each.name for each in compared_series(series_of([result]))] == ["fedavg"]
    causes = bottlenecks_of(read_timeline(result.of("central", 0).events.parent))
    assert {(each.phase, each.name) for each in causes} == {("compute", "raspberry-pi-4")}

    other = replay(folder, {"network.topology.latency": "90 ms"}, tmp_path / "replayed")
    rounds = "central/seed-0/rounds.parquet"
    assert (other / rounds).read_bytes() == (folder / rounds).read_bytes()
    write_sensitivity(folder)
    table = pq.read_table(folder / "sensitivity.parquet").to_pylist()
    last = {(row["devices"], row["bandwidth"]): row["seconds"] for row in table
            if (row["label"], row["seed"], row["round"]) == ("central", 0, ROUNDS)}  # fmt: skip
    assert len(last) == 9
    assert len(set(last.values())) == 3  # of the device, not of the bandwidth
    found = read_sensitivity(result)
    leaders = {found.answer(each, OWN).leaders for each in found.questions}
    assert leaders <= {("fedavg",), ()}


def test_what_clients_do_does_not_affect_it(small, tmp_path):
    """Their codec, deadline, crashes, framework, common finish, attacks, and the part of the model that they keep."""
    model = {"name": "cnn", "width": 2, "norm": "batch"}
    aside = {
        "model": {**model, "local": ["conv1.1", "conv2.1"]},
        "training__codec": {"up": {"kind": "top_k", "fraction": 0.1}},
        "training__local__common_finish": {"unit": "epochs", "most": 1},
        "protocol": {"kind": "synchronous", "deadline": "1 ms"},
        "round_overhead": {"kind": "flower"},
        "failures": [
            {"malicious": {"share": 0.99, "kind": "sign_flip"}},
            {"kind": "crash", "client": 0, "at": "10 ms"},
        ],
    }
    folders = [
        run(small(methods=[CENTRAL], **changes), out=tmp_path / name)
        for name, changes in (("alone", {"model": model}), ("aside", aside))
    ]
    for name in ("final.safetensors", "rounds.parquet"):
        assert len({(folder / "central" / "seed-0" / name).read_bytes() for folder in folders}) == 1

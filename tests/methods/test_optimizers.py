"""Local optimizers are those of ``torch.optim``, under every engine, and their state between a client's jobs."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace

import cloudpickle
import pytest
import torch
from torch import nn, optim

from edgefl.cost.law import CostModel
from edgefl.cost.method_cost import method_cost
from edgefl.cost.recorder import Recorder
from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.wiring import recipe_of
from edgefl.input_file import code_files
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.methods.parts.payload import ModelSizes
from edgefl.methods.parts.server import Arrival, Arrivals, RoundFacts
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.planning.planning import plan
from edgefl.record.events import Listener
from edgefl.report import RunResult
from edgefl.report.glance import answers
from edgefl.report.page.devices import devices_data
from edgefl.report.page.series import series_of
from edgefl.scenario import rehearse
from edgefl.scenario.loading import check
from edgefl.training.accelerator import Replay
from edgefl.training.core import TrainingCore
from edgefl.training.engines.batched import BatchedEngine
from edgefl.training.engines.parallel import ParallelEngine
from edgefl.training.engines.sequential import SequentialEngine
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import ClientData, JobTask
from edgefl.training.parallel.worker_pool import shared_pool

from ..small_runs import SMALL
from ..test_plug_ins import blocks

OPTIMIZERS = [
    ({"kind": "sgd"}, torch.optim.SGD),
    ({"kind": "adam"}, torch.optim.Adam),
    ({"kind": "adam", "betas": [0.0, 0.9], "eps": 1e-4, "amsgrad": True}, torch.optim.Adam),
    ({"kind": "adamw"}, torch.optim.AdamW),
    ({"kind": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.2}, torch.optim.Adagrad),
    ({"kind": "rmsprop"}, torch.optim.RMSprop),
    ({"kind": "rmsprop", "alpha": 0.9, "centered": True, "momentum": 0.8, "eps": 1e-3}, torch.optim.RMSprop),
]
CPU = torch.device("cpu")
CLIENTS, STEPS = 3, 5
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker process cannot import the tests


class DoubleData(ClientData):
    """Images in float64."""

    def batches(self, task):
        for batch in super().batches(task):
            yield Batch(batch.inputs.double(), batch.labels)

    def side_by_side(self, tasks):
        return None


def local_of(entry, **options):
    given = {"batch": 8, "lr": 0.02, "steps": STEPS, "weight_decay": 0.05, "clip_norm": 0.5, "no_decay": ("*.bias",)}
    return LocalOptions(optimizer=entry, **{**given, **options})


@pytest.fixture(scope="module")
def world():
    """Data, a model and its first weights in float64."""
    data = load_federated(Synthetic(shape=(1, 8, 8), classes=3, train=60, test=12, clients=CLIENTS), seed=0)
    model = build_model(MODELS["cnn"](width=2), data.shape, data.classes)
    return data, model, initial_vector(model, 0).double()


def jobs(world, entry):
    _, model, start = world
    method = build_method("fedavg", local_of(entry))
    return [
        JobTask(
            method="m", seed=0, client=client, round=0, dispatch=0, objective=method.objective, rule=method.rule,
            options=method.local.on(model.layout), lr=method.local.lr, steps=STEPS, alpha=model.depth, start=start,
        )
        for client in range(CLIENTS)
    ]  # fmt: skip


def by_torch(world, kind, entry, client):
    """The weights after the same job, with leaves and an optimizer as in any tutorial."""
    data, model, start = world
    local, entries = local_of(entry), model.layout.parameters
    leaves = [nn.Parameter(each.view(start[each.start : each.start + each.numel]).clone()) for each in entries]
    biases = [leaf for leaf, each in zip(leaves, entries, strict=True) if each.name.endswith("bias")]
    others = [leaf for leaf in leaves if all(leaf is not bias for bias in biases)]
    groups = [{"params": others, "weight_decay": local.weight_decay}, {"params": biases, "weight_decay": 0.0}]
    optimizer = kind(groups, lr=local.lr, **{name: value for name, value in entry.items() if name != "kind"})
    plan = job_batches(data.train, "none", data.shards.shard(client), local, STEPS, seed=0, client=client, dispatch=0)
    for step in range(STEPS):
        batch, weights = plan.step(step), tuple({} for _ in model.layout.block_names)
        for each, leaf in zip(entries, leaves, strict=True):
            weights[each.block][each.name] = leaf
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.apply_blocks(weights, batch.inputs.double()), batch.labels).backward()
        nn.utils.clip_grad_norm_(leaves, local.clip_norm)
        optimizer.step()
    return torch.cat([each.flat(leaf.detach()) for each, leaf in zip(entries, leaves, strict=True)])


@pytest.mark.usefixtures("worker_processes")
@pytest.mark.parametrize(("entry", "kind"), OPTIMIZERS, ids=lambda each: str(each)[:40])
def test_a_job_is_that_of_torch_under_every_engine(world, entry, kind):
    data, model, _ = world
    batches, tasks = DoubleData(data), jobs(world, entry)
    wanted = torch.stack([by_torch(world, kind, entry, client) for client in range(CLIENTS)])
    engines = [SequentialEngine(model, batches), BatchedEngine(model, batches, CPU, 4)]
    shared_pool(2)._first.result()
    engines.append(ParallelEngine(model, batches, 2))
    for engine in engines:
        found = torch.stack([result.final for result in engine.train(tasks)])
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        engine.close()


def test_the_state_of_one_client_alone_goes_on_if_it_is_kept(world):
    """Two jobs of five steps are one of ten: there is no other client in the mean."""
    data, model, _ = world

    def trained(state, rounds, steps):
        entry = {"kind": "adamw", "state": state}
        method = build_method("fedavg", local_of(entry, batch=20, steps=steps, clip_norm=None))
        with TrainingCore(ClientData(data), model, 0, engine="sequential") as core:
            learner, last = core.learner(method), None
            for round in range(rounds):
                job = JobId("m", 0, 1, round)
                learner.submit(TrainingJob(job, round, round, model.depth, steps, last))
                last = learner.aggregate(round, [job], round) and job
            return learner.model(rounds)

    # A batch is all of the client's images, so all steps have the same one.
    once = trained("reset", 1, 10)
    torch.testing.assert_close(trained("keep", 2, 5), once, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(trained("reset", 2, 5), once, atol=1e-4)


SCHEDULES = [
    ({"kind": "cosine", "rounds": 8}, lambda each: optim.lr_scheduler.CosineAnnealingLR(each, 8)),
    ({"kind": "linear", "rounds": 8, "end": 0.5}, lambda each: optim.lr_scheduler.LinearLR(each, 1.0, 0.5, 8)),
    ({"kind": "step", "every": 3, "factor": 0.5}, lambda each: optim.lr_scheduler.StepLR(each, 3, 0.5)),
    ({"kind": "exponential", "factor": 0.8}, lambda each: optim.lr_scheduler.ExponentialLR(each, 0.8)),
    ({"kind": "constant", "warmup": 4}, lambda each: optim.lr_scheduler.LinearLR(each, 0.25, 1.0, 3)),
]


@pytest.mark.parametrize(
    ("entry", "schedule"), SCHEDULES, ids=lambda each: each["kind"] if isinstance(each, dict) else ""
)
def test_rates_over_rounds_are_those_of_torch(entry, schedule):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.2)
    scheduler, options = schedule(optimizer), LocalOptions(lr={**entry, "value": 0.2})
    for round in range(8):
        assert options.lr_at(round) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_every_engine_gives_each_step_its_rate(world):
    """Two rounds of five steps over which the rate falls to zero have the rates of one schedule of ten steps."""
    data, model, _ = world
    lr = {"kind": "linear", "value": 1.0, "over": "steps"}
    method = build_method("fedavg", local_of("sgd", lr=lr), rounds=2)
    tasks = [replace(each, rates=method.local.lr_of_steps(1, STEPS)) for each in jobs(world, {"kind": "sgd"})]
    assert tasks[0].rates == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])
    batches = DoubleData(data)
    engines = [SequentialEngine(model, batches), BatchedEngine(model, batches, CPU, 4)]
    engines.append(BatchedEngine(model, batches, CPU, 4, Replay))
    found = [torch.stack([result.final for result in engine.train(tasks)]) for engine in engines]
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[2], found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            {"local": {"lr": {"kind": "cosine", "value": 1, "warmup": 5}}},
            r"local\.lr: warmup: expected at most the 4 r",
        ),
        (
            {"server_lr": {"kind": "linear", "value": 1, "warmup": 2, "rounds": 1}},
            r"server_lr: warmup: .* the 1 rounds",
        ),
        (
            {"local": {"lr": {"kind": "linear", "value": 1, "rounds": 3}}},
            r"local\.lr: the rate is 0 after 3 of 4 rounds",
        ),
        ({"server_lr": {"value": 1, "over": "steps"}}, r"methods\.0\.server_lr\.over: a server has no local steps"),
    ],
)
def test_rates_that_cannot_be_reached_are_refused(small, method, message):
    with pytest.raises(UserError, match=message):
        small(methods=[{"method": "fedavg", **method}])


def test_errors_of_local_training_name_the_section_that_sets_it(small):
    short, long = ({"kind": "linear", "value": 1, "rounds": rounds} for rounds in (3, 4))
    with pytest.raises(UserError, match=r"overrides: training\.local\.lr: the rate is 0 after 3 of 4 rounds"):
        small(training__local__lr=short)
    with pytest.raises(UserError, match=r"overrides: methods\.0\.local\.lr: the rate is 0 after 3 of 4 rounds"):
        small(training__local__lr=long, methods=[{"method": "fedavg", "local": {"lr": short}}])
    with pytest.raises(UserError, match=r"overrides: training\.local\.nesterov: this is an option of SGD"):
        small(training__local__nesterov=True, methods=[{"method": "fedavg", "local": {"optimizer": "adam"}}])
    named = small(methods=[{"method": "fedavg", "local": {"no_decay": ["typo"], "weight_decay": 0.1}}])
    with pytest.raises(UserError, match=r"methods\.0\.local\.no_decay: "):
        rehearse(named)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"lr": {"kind": "cosine", "value": 1}}, "ends at 0"),
        ({"optimizer": "adam", "lr": 0.001}, "is for adam, and calibration trains with sgd"),
    ],
)
def test_clients_are_not_personalised_at_a_rate_that_does_not_fit(small, local, message):
    changes = {f"training__local__{option}": value for option, value in local.items()}
    with pytest.raises(UserError, match=rf"personalisation\.lr: expected a rate: that of 'fedavg' {message}"):
        small(**changes, data__test="partitioned", personalisation={"kind": "calibration"})
    small(**changes, data__test="partitioned", personalisation={"kind": "calibration", "lr": 0.1})


def test_methods_with_one_rate_a_round_refuse_others():
    with pytest.raises(UserError, match=r"one learning rate for all local steps .* changes over steps; expected over"):
        build_method("scaffold", LocalOptions(lr={"kind": "constant", "value": 1, "over": "steps"}))


def test_a_servers_rate_changes_too():
    method = build_method({"method": "fedavg", "server_lr": {"kind": "linear", "value": 1}}, LocalOptions(), rounds=4)
    arrivals = Arrivals([Arrival(0, 0.1, 1, 1.0)], torch.ones(1, 2), torch.ones(1, 2))
    found = [method.server.update(torch.zeros(2), arrivals, {}, RoundFacts(0.1, 1, round))[0] for round in range(4)]
    assert [float(each[0]) for each in found] == [1.0, 0.75, 0.5, 0.25]


def test_a_server_that_averages_the_states_sends_the_mean_and_is_charged_for_it(world):
    data, model, _ = world
    method = build_method({"method": "fedavg", "weighting": "uniform"}, local_of({"kind": "adam", "state": "average"}))
    sizes = ModelSizes((100, 20))
    down = [method.payload.downlink(sizes, round, None, None) for round in range(2)]
    assert [sum(part.bytes for part in each.parts) for each in down] == [120, 364]
    assert sum(part.bytes for part in method.payload.uplink(sizes)) == 364
    with TrainingCore(ClientData(data), model, 0, engine="sequential") as core:
        learner, kept = core.learner(method), []
        train = learner._engine.train
        learner._engine.train = lambda tasks: kept.append((tasks, train(tasks))) or kept[-1][1]
        for round in range(2):
            ids = [JobId("m", 0, client, round) for client in range(CLIENTS)]
            for id in ids:
                learner.submit(TrainingJob(id, round, round, model.depth, STEPS, None))
            learner.aggregate(round, ids[:2] if round == 0 else ids, round)
    (_, first), (tasks, _) = kept
    for name in ("step", "exp_avg", "exp_avg_sq"):
        mean = (first[0].kept[name] + first[1].kept[name]) / 2
        assert all(torch.allclose(task.vectors[name], mean, rtol=1e-6) for task in tasks)
    assert float(learner._server.state["step"]) == 2 * STEPS


def test_the_average_moves_as_far_as_the_model_if_updates_are_stale():
    method = build_method("fedavg", LocalOptions(optimizer={"kind": "rmsprop", "state": "average"}))
    state, sent = {"square_avg": torch.tensor([1.0, 2.0])}, {"square_avg": torch.tensor([5.0, 10.0])}
    arrivals = Arrivals([Arrival(0, 0.1, 1, 1.0, factor=0.25, uploads=sent)], torch.ones(1, 2), torch.ones(1, 2))
    model, after = method.server.update(torch.zeros(2), arrivals, state, RoundFacts(0.1, 1))
    assert (model.tolist(), after["square_avg"].tolist()) == ([0.25, 0.25], [2.0, 4.0])


@pytest.mark.parametrize("method", ["fedbr", "heterofl"])
def test_methods_that_send_parts_do_not_average_states(method):
    with pytest.raises(UserError, match="the average of the optimizers' states needs"):
        build_method(method, LocalOptions(optimizer={"kind": "adam", "state": "average"}))


@pytest.mark.parametrize("method", ["scaffold", "fedadc", "fednova", "slowmo"])
def test_methods_of_sgd_refuse_other_optimizers(method):
    with pytest.raises(UserError, match=r"needs local steps of SGD, and local\.optimizer is adam"):
        build_method(method, LocalOptions(optimizer="adam"))


def test_momentum_is_an_option_of_sgd():
    with pytest.raises(UserError, match=r"local\.momentum: this is an option of SGD"):
        build_method("fedavg", LocalOptions(optimizer="rmsprop", momentum=0.9))


def test_an_optimizer_of_ones_own_is_a_class_in_a_file(world, tmp_path):
    (tmp_path / "lion.py").write_text(blocks("extending.md#A local optimizer", "python")[0], encoding="utf-8")
    data = copy.deepcopy(SMALL)
    data["training"]["local"]["optimizer"] = {"python": "lion.py:Lion", "args": {"beta1": 0.5}}
    scenario = check(data, folder=tmp_path)
    assert list(code_files(scenario)) == ["training.local.optimizer.python"]
    method = build_method("fedavg", scenario.training.local)
    state = method.rule.begin(torch.zeros(2), {}, method.local, 2)
    first = method.rule.update(torch.zeros(2), torch.tensor([1.0, -2.0]), state, method.local, 0.25)
    assert first.tolist() == [-0.25, 0.25]
    # The mean of m, [0.01, -0.02], and the gradient is positive in both.
    second = method.rule.update(first, torch.tensor([-0.005, 0.5]), state, method.local, 0.25)
    assert second.tolist() == [-0.5, 0.0]
    with pytest.raises(UserError, match=r"needs local steps of SGD, and local\.optimizer is python"):
        build_method("scaffold", scenario.training.local)
    entry = {"method": "fedavg", "local": data["training"]["local"]}
    own = check({**SMALL, "methods": [entry]}, folder=tmp_path)
    assert list(code_files(own)) == ["methods.0.optimizer"]
    assert recipe_of(own, own.methods[0]).rule == method.rule
    local = data["training"]["local"]
    local["optimizer"]["args"] = {"length": 1}
    with pytest.raises(UserError, match=r"training\.local\.optimizer\.args\.length: unknown key"):
        check(data, folder=tmp_path)


def test_two_numbers_for_each_parameter_are_counted(world):
    """Adam's state and its element-wise passes are more memory and bytes than SGD's."""
    costs = CostModel(world[1])
    methods = [build_method("fedavg", LocalOptions(optimizer=each)) for each in ("sgd", "adam")]
    plain, adam = (method_cost(costs, each, 8) for each in methods)
    numbers = world[1].layout.parameter_count
    assert (plain.optimizer_bytes, adam.optimizer_bytes) == (0, 8 * numbers + 4)
    assert adam.step.peak_memory_bytes - plain.step.peak_memory_bytes == pytest.approx(8 * numbers, abs=100)
    # lerp 3, multiply 2, addcmul 3, root 2, multiply 2, add 2, divide 3, addcmul 3; SGD subtracts: 3.
    assert adam.step.bytes_touched - plain.step.bytes_touched == pytest.approx(17 * 4 * numbers, abs=1000)
    here, gradient, rule = torch.ones(numbers), torch.ones(numbers), methods[1].rule
    memory = rule.first(here)
    with Recorder() as recorder:  # on a processor as well, although it has a fused kernel
        rule.update(here, gradient, memory, methods[1].local, 0.1)
    assert sum(each.bytes for each in recorder.records) == pytest.approx(20 * 4 * numbers, abs=1000)


class Told(Listener):
    def __init__(self):
        self.advice = []

    def advised(self, advice):
        self.advice.append(advice)


def test_a_device_with_room_for_sgd_alone_is_excluded_by_adam(small, tmp_path):
    """Its memory is between the peaks of the two: plan and page exclude it from the second method."""
    methods = ["fedavg", {"method": "fedavg", "as": "adam", "local": {"optimizer": "adam"}}]
    peaks = [each.devices[0].peak_memory_bytes for each in plan(small(methods=methods)).methods]
    room = f"{sum(peaks) / 2:.0f} B"
    fleet = [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "overrides": {"memory": {"training": room}}}]
    scenario = small(methods=methods, fleet=fleet)
    plans = plan(scenario).methods
    assert [(each.devices[0].refused, each.devices[0].clients) for each in plans] == [(0, 8), (8, 8)]
    told = Told()
    found = RunResult(run(scenario, out=tmp_path / "run", listeners=[told]))
    assert [each.partition(":")[0] for each in told.advice] == ["adam"]
    assert answers(found)[0].endswith("(without adam: not trained)")
    series = series_of([found])
    rows = [row[:3] for row in devices_data(series)["memory"]]
    assert rows == [["fedavg", "sgd", "none"], ["adam", "adam", "raspberry-pi-4"]]

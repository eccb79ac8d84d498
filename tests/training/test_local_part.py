"""What stays local is not sent, survives between a client's rounds, and is averaged only to evaluate."""

import copy
import sys

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost.law import CostModel
from edgefl.cost.method_cost import method_cost
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.codecs.base import NoCodec
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import MODELS, build_model
from edgefl.training.core import TrainingCore
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import few_of, jobs_of, train_round

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker process cannot import the tests


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.middle, self.last = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(36, 3)

    def forward(self, inputs):
        maps = self.last(self.middle(F.relu(self.norm(self.stem(inputs))))).relu()
        return self.head(torch.flatten(F.max_pool2d(maps, 2), 1))


class Ordinary(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Net()


STATISTICS = {f"{layer}.running_{what}" for layer in ("norm", "last") for what in ("mean", "var")}
NORMS = STATISTICS | {f"{layer}.{what}" for layer in ("norm", "last") for what in ("weight", "bias")}
EVERYTHING = {name for name in Net().state_dict() if "tracked" not in name}
FEDBN = {"local": ["norm", "last"]}


def built(**options):
    return build_model(Ordinary(**options), (1, 6, 6), 3)


def trained(tiny, engine, method, rounds=3, **options):
    with tiny.core(engine, 2, built(**options)) as core:
        if engine == "parallel":
            core._own.engine._settled = 0
            shared_pool(2)._first.result()
        learner = core.learner(method)
        for round in range(rounds):
            train_round(learner, jobs_of(core, method, round))
        return learner.model(rounds), learner.local_parts()


def named(model, vector):
    return {name: each for block in model.layout.weights(*model.layout.split(vector)) for name, each in block.items()}


@pytest.mark.parametrize(
    ("options", "entry", "engine"),
    few_of(
        [({"buffers": "local"}, "scaffold", "batched"), (FEDBN, "fedmlb", "batched"), ({}, "fedavg", "batched"),
         ({"buffers": "local"}, "fedavg", "parallel"), (FEDBN, "fedbr", "parallel")],
        [(FEDBN, "fedavg", "batched")],
    ), ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("worker_processes")
def test_every_engine_trains_to_the_same_numbers(tiny, options, entry, engine):
    method = tiny.method(entry, epochs=1)
    model, own = trained(tiny, "sequential", method, **options)
    found, theirs = trained(tiny, engine, method, **options)
    exact = {"rtol": 0, "atol": 0} if engine == "parallel" else {"rtol": 2e-3, "atol": 5e-4}
    torch.testing.assert_close(found, model, **exact)
    assert own.keys() == theirs.keys() == (set(range(6)) if options else set())
    for client in own:
        torch.testing.assert_close(theirs[client], own[client], **exact)


def by_hand(core, data, method, local, rounds):
    """FedBN as the paper's Algorithm 1: local training, then the mean of everything but the local part."""
    nets = []
    for _ in range(6):
        nets.append(Net().train())
        nets[-1].load_state_dict(named(core.model, core.initial.clone()), strict=False)
    counts = [data.samples(client) for client in range(6)]
    for round in range(rounds):
        for client, net in enumerate(nets):
            job = jobs_of(core, method, round, [client])[0]
            optimiser = torch.optim.SGD(net.parameters(), lr=method.local.lr_at(round))
            task = type("Task", (), {"client": client, "options": method.local, "steps": job.steps, "seed": 3})
            task.dispatch = round
            for batch in data.batches(task):
                optimiser.zero_grad()
                F.cross_entropy(net(batch.inputs), batch.labels).backward()
                optimiser.step()
        states = [copy.deepcopy(net.state_dict()) for net in nets]
        mean = {
            name: sum(n * state[name] for n, state in zip(counts, states, strict=True)) / sum(counts)
            for name in states[0]
            if "tracked" not in name
        }
        for net in nets:
            net.load_state_dict({name: each for name, each in mean.items() if name not in local}, strict=False)
    return states, mean


@pytest.mark.parametrize(
    ("options", "local"),
    [({"buffers": "local"}, STATISTICS), (FEDBN, NORMS), ({"local": ["*"]}, EVERYTHING)],
    ids=["buffers", "fedbn", "alone"],
)
def test_rounds_are_those_of_the_algorithm_by_hand(tiny, options, local):
    method = tiny.method("fedavg", weight_decay=0.0, clip_norm=None, lr=0.05, momentum=0.0)
    data = tiny.data()
    with TrainingCore(data, built(**options), 3, engine="sequential") as core:
        learner = core.learner(method)
        for round in range(3):
            train_round(learner, jobs_of(core, method, round))
        states, mean = by_hand(core, data, method, local, 3)
        found = named(core.model, learner.model(3))
        for name, each in found.items():  # the server evaluates with the mean of the local parts
            torch.testing.assert_close(each, mean[name], rtol=1e-3, atol=1e-4)
        for client, own in learner.local_parts().items():
            model = named(core.model, core.model.layout.with_local_part(learner.model(3), own))
            for name in local:
                torch.testing.assert_close(model[name], states[client][name], rtol=1e-3, atol=1e-4)


def test_what_stays_local_is_not_sent():
    whole, statistics, fedbn = (
        encoded_sizes(NoCodec(), built(**options).layout).model_bytes for options in ({}, {"buffers": "local"}, FEDBN)
    )
    assert whole - statistics == 4 * 4 * 4  # two layers' means and variances of four channels, four bytes each
    assert whole - fedbn == 2 * 4 * 4 * 4
    cost = method_cost(CostModel(built(**FEDBN)), build_method("fedavg", LocalOptions()), 4)
    assert [part.bytes for part in (*cost.down, *cost.up)] == [fedbn, fedbn]
    assert cost.stored.between_rounds == 16  # the parameters of two norm layers


def test_a_codec_changes_nothing_of_what_is_not_sent(tiny):
    def norms(codec):
        method = tiny.method({"method": "fedavg", "codec": {"up": codec}}, batch=4)
        return trained(tiny, "sequential", method, rounds=1, **FEDBN)[1]

    exact, coarse = norms("none"), norms({"kind": "quantise", "bits": 4})
    assert all(torch.equal(exact[client], coarse[client]) for client in exact)


@pytest.mark.parametrize("entry", ["fedavg", "fedbr"])
def test_after_a_lost_upload_the_local_part_arrives_as_it_is(tiny, entry):
    method = tiny.method({"method": entry, "codec": {"up": {"kind": "top_k", "fraction": 0.1}}}, batch=4)
    with TrainingCore(tiny.data(), built(**FEDBN), 3, engine="sequential") as core:
        learner = core.learner(method)
        lost = jobs_of(core, method, 0, [1])[0]
        learner.submit(lost)
        learner.discard(lost.id)
        learner.aggregate(0, [], 0)
        job = jobs_of(core, method, 1, [1])[0]
        learner.submit(job)
        learner.aggregate(1, [job.id], 1)
        own = learner.local_parts()[1]
        # The server's mean is that of one client.
        torch.testing.assert_close(core.model.layout.local_part(learner.model(2)), own, rtol=1e-5, atol=1e-6)


def test_distances_that_the_server_reports_are_those_of_what_it_receives(tiny):
    method = tiny.method("fedavg", batch=4)
    with TrainingCore(tiny.data(), built(**FEDBN), 3, engine="sequential") as core:
        learner, layout = core.learner(method), core.model.layout
        for round in range(2):
            jobs = jobs_of(core, method, round, [0, 1])
            for job in jobs:
                learner.submit(job)
            learner._train([job.id for job in jobs])
            finals = {id: outcome.final for id, outcome in learner._outcomes.items()}
            learner.aggregate(round, [job.id for job in jobs], round)
        is_sent = torch.ones(layout.parameter_count, dtype=torch.bool)
        for place in layout.local_parameters:
            is_sent[place] = False
        for job in jobs:
            found = learner.feedback(job.id)
            difference = (finals[job.id] - learner.model(2))[: layout.parameter_count][is_sent]
            assert found.distance == pytest.approx(float(difference.double().square().sum()), rel=1e-4)
            assert found.drift == 0.0  # it started from what the server sent, and its own part


def test_a_client_that_is_late_keeps_its_part(tiny):
    method = tiny.method("fedavg", batch=4)
    with TrainingCore(tiny.data(), built(**FEDBN), 3, engine="sequential") as core:
        learner = core.learner(method)
        first = jobs_of(core, method, 0, [0, 1])
        for job in first:
            learner.submit(job)
        learner.discard(first[1].id)
        learner.aggregate(0, [first[0].id], 0)
        assert learner.local_parts().keys() == {0}
        second = jobs_of(core, method, 1, [1])
        learner.submit(second[0])
        learner.aggregate(1, [second[0].id], 1)
        before = core.model.layout.local_part(core.initial)
        task = learner._resolver.resolve(second[0], learner._server.sent, {"own": before + 1}).task
        assert torch.equal(core.model.layout.local_part(task.start), before + 1)
        assert learner.local_parts().keys() == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local": ["nrm"]}, r"local: 'nrm' names no tensors that are trained; expected submodules, such as: stem"),
        ({"local": ["norm"], "trainable": ["head"]}, r"local: 'norm' names no tensors that are trained"),
    ],
)
def test_wrong_parts_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        built(**options)


def test_a_model_without_statistics_has_no_buffers_to_keep():
    with pytest.raises(UserError, match=r"buffers: the model has no running statistics to keep local"):
        build_model(MODELS["cnn"](width=2, buffers="local"), (1, 8, 8), 3)
    own = build_model(MODELS["cnn"](width=2, norm="batch", buffers="local"), (1, 8, 8), 3)
    assert len(own.layout.local) == len(own.layout.buffers) > 0


@pytest.mark.parametrize("entry", ["scaffold", "fedadc", {"method": "fedavg", "server": "feddyn"}], ids=str)
def test_methods_whose_server_controls_all_parameters_keep_only_buffers_local(tiny, entry):
    method = tiny.method(entry, batch=4)
    with pytest.raises(UserError, match="needs all parameters of the model from each client, and clients keep some"):
        trained(tiny, "sequential", method, **FEDBN)
    trained(tiny, "sequential", method, rounds=1, buffers="local")


def test_clients_without_a_server_train_as_if_each_was_the_only_one(tiny):
    """The method local: each client's model is that of federated averaging with this client alone."""

    def trained(name, clients):
        core, method = tiny.core(), tiny.method(name)
        learner = core.learner(method)
        for round in range(2):
            jobs = jobs_of(core, learner._method, round, clients)
            train_round(learner, jobs)
        return learner

    together, alone = trained("local", [0, 2]), {client: trained("fedavg", [client]) for client in (0, 2)}
    for client, each in alone.items():
        own = torch.cat([each.model(2)[place] for place in together._model.layout.local])
        torch.testing.assert_close(together.local_parts()[client], own, rtol=1e-5, atol=1e-6)
    first = tiny.core().learner(tiny.method("local")).evaluate(0).loss
    losses = [alone[client].evaluate(2).loss if client in alone else first for client in range(6)]
    assert together.evaluate(2).loss == pytest.approx(sum(losses) / 6, rel=1e-4)

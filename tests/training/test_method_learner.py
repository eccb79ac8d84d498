import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgefl.data.batches import batch_plan
from edgefl.methods.fedavg import Mean
from edgefl.training.faults import Diverged
from edgefl.training.job import JobId, Mixing
from edgefl.training.learner import Distances

from .conftest import few_of


def ids(clients, dispatch=0):
    return [JobId("m", 3, client, dispatch) for client in clients]


def start(tiny, entry="fedavg", **options):
    core = tiny.core()
    return core, core.learner(tiny.method(entry, **options))


def catch(learner):
    """The calls of the engine, as lists of (client, dispatch), and the tasks of the last one."""
    calls, tasks, train = [], [], learner._engine.train

    def caught(handed):
        calls.append([(task.client, task.dispatch) for task in handed])
        tasks[:] = handed
        return train(handed)

    learner._engine.train = caught
    return calls, tasks


def plain_training(tiny, core, client, vector, options, dispatch=0, round=0):
    """The same local training, written with a module and an optimiser as in any PyTorch tutorial."""
    model = tiny.model()
    layout = core.model.layout
    for block, tensors in zip(model.blocks.values(), layout.weights(*layout.split(vector)), strict=True):
        block.load_state_dict(tensors)
    lr = options.lr * options.lr_decay**round
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=options.momentum, weight_decay=options.weight_decay)
    steps = options.steps_for(tiny.sizes[client])
    losses = []
    for indices in batch_plan(core.data.shard(client), options, steps, seed=3, client=client, dispatch=dispatch):
        loss = F.cross_entropy(model(core.data.images[indices]), core.data.labels[indices])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        optimiser.step()
        losses.append((loss.item(), len(indices)))
    return layout.flatten([block.state_dict() for block in model.blocks.values()]), losses


def mean(losses):
    return sum(loss * size for loss, size in losses) / sum(size for _, size in losses)


def test_fedavg_is_the_weighted_mean_of_models_that_a_plain_loop_trains(tiny):
    core, learner = start(tiny, momentum=0.5)
    options = tiny.local.model_copy(update={"momentum": 0.5})
    model = core.initial
    for round in range(2):
        clients = [4, 0, 3]
        for client in clients:
            learner.submit(tiny.job(client, round, dispatch=round))
        assert learner.aggregate(round, ids(clients, round), round) == round + 1
        plain = {client: plain_training(tiny, core, client, model, options, round, round) for client in clients}
        total = sum(tiny.sizes[client] for client in clients)
        expected = sum(plain[client][0].double() * tiny.sizes[client] / total for client in clients)
        torch.testing.assert_close(learner.model(round + 1).double(), expected, rtol=1e-4, atol=1e-5)
        for client in clients:
            vector, losses = plain[client]
            said = learner.feedback(JobId("m", 3, client, round))
            # Two epochs of ceil(n/4) steps each.
            assert said.first_loss == pytest.approx(mean(losses[: len(losses) // 2]), rel=1e-4)
            assert said.loss == pytest.approx(mean(losses[len(losses) // 2 :]), rel=1e-4)
            count = core.model.layout.parameter_count
            distance = (vector.double() - learner.model(round + 1).double())[:count].square().sum()
            assert said.distance == pytest.approx(float(distance), rel=1e-2)
            assert said.drift == 0.0
        model = learner.model(round + 1)


def test_uniform_weights_count_clients_alike(tiny):
    core, learner = start(tiny, {"method": "fedavg", "weighting": "uniform"})
    for client in (0, 3):
        learner.submit(tiny.job(client))
    learner.aggregate(0, ids([0, 3]), 0)
    finals = [plain_training(tiny, core, client, core.initial, tiny.local)[0] for client in (0, 3)]
    torch.testing.assert_close(learner.model(1), (finals[0] + finals[1]) / 2, rtol=1e-4, atol=1e-5)


def test_where_the_last_batch_is_left_out_clients_count_by_whole_batches(tiny):
    method = tiny.method("fedavg", drop_last=True)
    core = tiny.core()
    learner = core.learner(method)
    seen = []

    class Watching(Mean):
        def update(self, parameters, arrivals, state, facts):
            seen.append((arrivals.weights.tolist(), [each.steps for each in arrivals], facts.lr, facts.clients))
            return super().update(parameters, arrivals, state, facts)

    learner = core.learner(replace(method, server=Watching()))
    steps = {client: method.local.steps_for(tiny.sizes[client]) for client in (0, 1, 5)}
    for client in (0, 1, 5):
        learner.submit(tiny.job(client, steps=steps[client]))
    learner.aggregate(0, ids([0, 1, 5]), 0)
    # 7, 12 and 3 images in batches of 4: one whole batch, three, and none, so client 5 counts with all it has.
    shares, facts, lr, clients = seen[0]
    assert shares == pytest.approx([4 / 19, 12 / 19, 3 / 19])
    assert (facts, lr, clients) == ([2, 6, 2], tiny.local.lr, 6)


def test_everything_that_waits_is_trained_in_one_call_ascending_and_only_when_it_is_needed(tiny):
    _, learner = start(tiny)
    calls, _ = catch(learner)
    for client in (5, 1, 3, 2):
        learner.submit(tiny.job(client))
    learner.discard(JobId("m", 3, 1, 0))
    assert calls == []
    learner.aggregate(0, ids([5, 3]), 0)
    assert calls == [[(3, 0), (5, 0)]]
    # Client 2 arrives a round late, from the version that it received.
    learner.submit(tiny.job(0, 1))
    learner.aggregate(1, ids([2, 0]), 1)
    assert calls[1:] == [[(0, 0), (2, 0)]]


def test_a_round_in_which_nobody_arrives_keeps_the_model_and_its_evaluation(tiny):
    core, learner = start(tiny)
    learner.submit(tiny.job(0))
    learner.discard(JobId("m", 3, 0, 0))
    assert learner.aggregate(0, [], 0) == 1
    assert torch.equal(learner.model(1), core.initial)
    assert learner.evaluate(1) == tiny.core().learner(tiny.method("fedavg")).evaluate(0)


def test_blocks_that_were_not_sent_are_the_clients_own(tiny):
    core, learner = start(tiny, "fedbr")
    layout = core.model.layout
    _, tasks = catch(learner)
    for client in (0, 1):
        learner.submit(tiny.job(client))
    learner.aggregate(0, ids([0, 1]), 0)
    own = learner._states.kept[JobId("m", 3, 0, 0)]["previous"]
    learner.submit(tiny.job(0, 1, dispatch=1, alpha=2, previous=0))
    learner.submit(tiny.job(4, 1, alpha=1))
    server = learner.model(1)
    learner.aggregate(1, [JobId("m", 3, 0, 1), JobId("m", 3, 4, 0)], 1)
    assert torch.equal(tasks[0].start, layout.splice(own, server, 1))
    assert torch.equal(tasks[0].frozen["received"], tasks[0].start)
    # Client 4 never had a model of its own: the initial one, which all share, stands in front.
    assert torch.equal(tasks[1].start, layout.splice(core.initial, server, 2))
    front = sum(entry.numel for entry in layout.parameters if entry.block == 0)
    drift = (own.double() - server.double())[:front].square().sum()
    assert learner.feedback(JobId("m", 3, 0, 1)).drift == pytest.approx(float(drift), rel=1e-6)


def test_blocks_that_were_not_sent_are_those_of_a_broadcast_since_the_last_job(tiny):
    core, learner = start(tiny, "fedbr")
    layout = core.model.layout
    _, tasks = catch(learner)
    learner.submit(tiny.job(0))
    learner.submit(tiny.job(1))
    learner.aggregate(0, ids([0, 1]), 0)
    broadcast = learner.model(1).clone()
    for client in (0, 4):
        learner.received(client, 1)
    learner.submit(tiny.job(1, 1, dispatch=1, alpha=2, previous=0))
    learner.aggregate(1, ids([1], 1), 1)
    # The version outlives a checkpoint, and a job that its client gave up.
    learner.restore(*learner.snapshot())
    learner.submit(replace(tiny.job(4, 2, alpha=1), front=1))
    learner.discard(JobId("m", 3, 4, 0))
    learner.aggregate(2, [], 2)
    server = learner.model(3)
    learner.submit(replace(tiny.job(0, 3, dispatch=1, alpha=2, previous=0), front=1))
    learner.submit(replace(tiny.job(4, 3, dispatch=1, alpha=1), front=1))
    learner.aggregate(3, [JobId("m", 3, 0, 1), JobId("m", 3, 4, 1)], 3)
    assert torch.equal(tasks[0].start, layout.splice(broadcast, server, 1))
    assert torch.equal(tasks[1].start, layout.splice(broadcast, server, 2))
    assert set(learner._versions) == {4}


def test_a_discarded_job_is_trained_when_a_later_job_builds_on_it_and_before_it(tiny):
    _, learner = start(tiny, "fedbr")
    calls, tasks = catch(learner)
    learner.submit(tiny.job(0))
    learner.submit(tiny.job(1))
    learner.discard(JobId("m", 3, 0, 0))
    learner.aggregate(0, ids([1]), 0)
    assert calls == [[(1, 0)]]
    learner.submit(tiny.job(0, 1, dispatch=1, alpha=1, previous=0))
    learner.aggregate(1, ids([0], 1), 1)
    assert calls[1:] == [[(0, 0)], [(0, 1)]]
    assert tasks[0].dispatch == 1


def test_a_job_that_the_client_gave_up_is_never_trained_once_the_next_builds_on_the_one_before(tiny):
    _, learner = start(tiny, "fedbr")
    calls, _ = catch(learner)
    learner.submit(tiny.job(0))
    learner.aggregate(0, ids([0]), 0)
    learner.submit(tiny.job(0, 1, dispatch=1, previous=0))
    learner.discard(JobId("m", 3, 0, 1))
    learner.aggregate(1, [], 1)
    learner.submit(tiny.job(0, 2, dispatch=2, alpha=1, previous=0))
    learner.aggregate(2, ids([0], 2), 2)
    assert calls == [[(0, 0)], [(0, 2)]]
    assert not learner._waiting
    assert len(learner._states.kept) == 1


def test_a_rule_reads_the_momentum_of_the_version_that_its_client_received(tiny):
    core, learner = start(tiny, {"method": "fedadc", "beta_g": 0.5, "beta_l": 0.5})
    _, tasks = catch(learner)
    learner.submit(tiny.job(0))
    learner.aggregate(0, ids([0]), 0)
    assert not tasks[0].vectors["momentum"].any()
    learner.submit(tiny.job(0, 1, dispatch=1))
    learner.submit(tiny.job(1, 1))
    count = core.model.layout.parameter_count
    # With one client and beta_g = beta_l the momentum is the step that the server took, over the learning rate.
    momentum = (core.initial - learner.model(1))[:count] / tiny.local.lr
    learner.aggregate(1, ids([0], 1), 1)
    torch.testing.assert_close(tasks[0].vectors["momentum"], momentum, rtol=1e-4, atol=1e-5)
    learner.aggregate(2, ids([1]), 2)
    torch.testing.assert_close(tasks[0].vectors["momentum"], momentum, rtol=1e-4, atol=1e-5)


def test_a_model_that_leaves_the_real_line_is_reported_with_its_method_and_round(tiny):
    _, learner = start(tiny, {"method": "fedavg", "as": "wild"}, lr=1e30, clip_norm=None)
    learner.submit(tiny.job(2))
    with pytest.raises(Diverged, match="method 'wild' diverged in round 1: the loss of client 2 is not finite") as told:
        learner.aggregate(0, ids([2]), 0)
    assert (told.value.method, told.value.round) == ("wild", 0)


def test_a_server_step_that_overflows_is_reported(tiny):
    class Overflowing(Mean):
        def update(self, parameters, arrivals, state, facts):
            return parameters + arrivals.deltas[0] * 1e38 * 1e38, state

    learner = tiny.core().learner(replace(tiny.method("fedavg"), server=Overflowing()))
    before = learner.evaluate(0)
    learner.submit(tiny.job(2))
    with pytest.raises(Diverged, match="the server model is not finite"):
        learner.aggregate(0, ids([2]), 0)
    assert learner.model(0).isfinite().all(), "the model before stays the latest one"
    assert learner.evaluate(0) == before


@pytest.mark.parametrize("entry", few_of(["fedavg", "fedadc"], ["fedbr"]))
def test_nothing_grows_over_rounds_with_late_lost_and_given_up_jobs(tiny, entry):
    _, learner = start(tiny, entry)
    dispatch, last, alive = dict.fromkeys(range(6), 0), {}, []
    stateful = learner._method.state is not None
    for round in range(60):
        arrived = []
        for client in (round % 6, (round + 1) % 6, 5):
            if any(job.client == client for job in arrived):
                continue
            job = tiny.job(client, round, dispatch=dispatch[client], steps=1)
            job = replace(job, previous=last.get(client) if stateful else None)
            dispatch[client] += 1
            learner.submit(job)
            if client == 5 or (client + round) % 4 == 0:  # client 5 is always late, others now and then give up
                learner.discard(job.id)
            else:
                arrived.append(job.id)
            if client == 5 or job.id in arrived:
                last[client] = job.id
        learner.aggregate(round, arrived, round)
        alive.append(weakref.ref(learner.model(round + 1)))
        assert len(learner._versions) <= 18
        assert len(learner._waiting) <= 18 + 6
        assert len(learner._states.kept) <= 2 * 6 + 18
        assert len(learner._outcomes) == 0
    assert sum(reference() is not None for reference in alive) <= 18


def test_a_version_is_evaluated_once(tiny):
    core = tiny.core()
    counted, evaluate = [], core._own.engine.evaluate
    core._own.engine.evaluate = lambda *asked: counted.append(asked) or evaluate(*asked)
    learner = core.learner(tiny.method("fedavg"))
    assert learner.evaluate(0) == learner.evaluate(0)
    learner.submit(tiny.job(0))
    learner.aggregate(0, ids([0]), 0)
    assert learner.evaluate(1) == learner.evaluate(1)
    assert len(counted) == 2


def stale_pair(tiny, mixing):
    """Versions 0, 1, 2: client 4 trained from version 0, client 0 from version 1, both aggregated into version 2."""
    core, learner = start(tiny)
    for client in (3, 4):
        learner.submit(tiny.job(client))
    learner.aggregate(0, ids([3]), 0)
    sent = {4: core.initial, 0: learner.model(1)}
    learner.submit(tiny.job(0, 1, dispatch=0))
    learner.aggregate(1, ids([0, 4]), 1, mixing)
    # Each job trains with the learning rate of the round that it began in.
    finals = {c: plain_training(tiny, core, c, sent[c], tiny.local, round=r)[0].double() for c, r in ((0, 1), (4, 0))}
    return learner.model(2).double(), {c: vector.double() for c, vector in sent.items()}, finals


def test_stale_deltas_are_taken_from_the_version_sent_and_scaled(tiny):
    factors = {JobId("m", 3, 4, 0): 0.25, JobId("m", 3, 0, 0): 1.0}
    model, sent, finals = stale_pair(tiny, Mixing(factors))
    total = tiny.sizes[0] + tiny.sizes[4]
    scaled = {0: tiny.sizes[0] / total, 4: 0.25 * tiny.sizes[4] / total}
    expected = sent[0] + sum(share * (finals[client] - sent[client]) for client, share in scaled.items())
    torch.testing.assert_close(model, expected, rtol=1e-4, atol=1e-5)


def test_mixing_models_moves_the_latest_model_towards_the_clients(tiny):
    factors = {JobId("m", 3, 4, 0): 0.3, JobId("m", 3, 0, 0): 0.3}
    model, sent, finals = stale_pair(tiny, Mixing(factors, of="models"))
    total = tiny.sizes[0] + tiny.sizes[4]
    mean_model = sum(tiny.sizes[client] / total * finals[client] for client in (0, 4))
    torch.testing.assert_close(model, 0.7 * sent[0] + 0.3 * mean_model, rtol=1e-4, atol=1e-5)


def test_a_client_may_have_two_jobs_in_one_aggregation(tiny):
    _, learner = start(tiny, "scaffold")
    first = tiny.job(2)
    learner.submit(first)
    learner.submit(replace(tiny.job(2, dispatch=1), previous=first.id))
    both = [first.id, JobId("m", 3, 2, 1)]
    learner.aggregate(0, both, 0, Mixing(dict.fromkeys(both, 1.0)))
    assert learner.feedback(both[0]) != learner.feedback(both[1])


@pytest.mark.parametrize("scale", [1.0, 1e30])
def test_a_distance_is_the_sum_of_squares_in_float64_however_far_apart_the_models_are(tiny, scale):
    with tiny.core("sequential") as core:
        layout = core.model.layout
        vector, other = scale * torch.randn(2, layout.size, generator=torch.Generator().manual_seed(0))
        expected = float((vector.double() - other.double())[: layout.parameter_count].square().sum())
        distances = Distances(layout, vector)
        assert distances.squared(vector, other) == pytest.approx(expected, rel=1e-6)
        assert distances.all_squared([vector, other], other) == pytest.approx([expected, 0], rel=1e-6)


def played(tiny, entry, **changes):
    """Version 1 from client 3; version 2 from client 0 (of version 1) and client 4 (of version 0, with weight 1/4)."""
    core, learner = start(tiny, entry, **changes)
    for client in (3, 4):
        learner.submit(tiny.job(client))
    learner.aggregate(0, ids([3]), 0)
    first = {name: vector.clone() for name, vector in learner._server.state.items()}
    sent = {4: core.initial, 0: learner.model(1).clone()}
    learner.submit(tiny.job(0, 1))
    learner.aggregate(1, ids([0, 4]), 1, Mixing({JobId("m", 3, 0, 0): 1.0, JobId("m", 3, 4, 0): 0.25}))
    return core, learner, first, sent


@pytest.mark.parametrize(
    ("method", "kept", "own"), [("scaffold", "control", "client_control"), ("feddyn", "shift", "drift")]
)
def test_the_server_keeps_the_mean_of_what_its_clients_keep(tiny, method, kept, own):
    """SCAFFOLD's c is the mean of all c_k, FedDyn's shift that of all drifts, whatever the weights of stale updates."""
    _, learner, _, _ = played(tiny, method)
    states = [state[own].double() for state in learner._states.kept.values()]
    assert len(states) == 3
    torch.testing.assert_close(learner._server.state[kept].double(), sum(states) / 6, rtol=1e-4, atol=1e-6)


def test_slowmo_divides_each_update_by_the_rate_of_its_own_round(tiny):
    options = tiny.local.model_copy(update={"lr_decay": 0.5})
    core, learner, first, sent = played(tiny, {"method": "slowmo", "weighting": "uniform"}, lr_decay=0.5)
    count = core.model.layout.parameter_count
    momentum = 0.8 * first["momentum"].double()
    for client, round, factor in ((4, 0, 0.25), (0, 1, 1.0)):
        final = plain_training(tiny, core, client, sent[client], options, round=round)[0]
        momentum -= 0.5 * factor * (final - sent[client])[:count].double() / (options.lr * 0.5**round)
    torch.testing.assert_close(learner._server.state["momentum"].double(), momentum, rtol=1e-3, atol=1e-4)

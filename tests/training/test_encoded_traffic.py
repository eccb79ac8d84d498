"""What a learner makes of codecs: clients train from what arrived, and the server adds up what arrived."""

import pytest
import torch

from edgefl.methods.codecs.by_tensor import encoded_sizes, transmitted
from edgefl.methods.codecs.choice import Codecs, codec
from edgefl.methods.parts.payload import ModelSizes
from edgefl.randomness import generator
from edgefl.training.job import JobId, TrainingJob

from .conftest import few_of

QUANTISED = {"up": {"kind": "quantise", "bits": 4, "rounding": "stochastic"}, "down": "quantise"}
SPARSE = {"up": {"kind": "top_k", "fraction": 0.1}, "down": {"kind": "cast", "to": "bfloat16"}}
BOTH = {"up": SPARSE["up"], "down": "quantise"}
METHODS = ["fedavg", "fedbr", "fedadc", {"method": "fedadc", "beta_g": 0.6}, "scaffold", "feddyn", "fedgkd", "kd"]


def coded(entry, codecs):
    return {**({"method": entry} if isinstance(entry, str) else entry), "codec": codecs}


def play(learner, method, rounds=3, *, depth=3, clients=range(6), late=(), order=1):
    """Rounds in which all clients train; those of ``late`` (round, client) do not arrive."""
    last = {}
    for round in range(rounds):
        jobs = []
        for client in clients:
            before = last.get(client) if method.state is not None else None
            alpha = 1 + (client + round) % depth if before and method.name == "fedbr" else depth
            steps = method.local.steps_for((7, 12, 5, 20, 9, 3)[client])
            jobs.append(TrainingJob(JobId("m", 3, client, round), round, round, alpha, steps, before))
            last[client] = jobs[-1].id
        for job in jobs[::order]:
            learner.submit(job)
        for job in jobs:
            if (round, job.id.client) in late:
                learner.discard(job.id)
        arrived = [job.id for job in jobs[::order] if (round, job.id.client) not in late]
        learner.aggregate(round, arrived, round)
    return learner


class Watched:
    """A learner whose trained jobs and server updates are written down."""

    def __init__(self, tiny, entry, engine="sequential"):
        self.method = tiny.method(entry)
        self.core = tiny.core(engine)
        self.learner = self.core.learner(self.method)
        self.tasks, self.results, self.deltas, self.uploads = [], [], [], []
        train = self.learner._engine.train

        def watch(tasks):
            results = train(tasks)
            self.tasks += tasks
            self.results += results
            return results

        self.learner._engine = type("Engine", (), {"train": staticmethod(watch)})()
        server, watched = self.method.server, self

        class Server(type(server)):
            def update(self, parameters, arrivals, state, facts):
                watched.deltas.append(arrivals.deltas.clone())
                watched.uploads.append(arrivals.each[0].uploads)
                return super().update(parameters, arrivals, state, facts)

        object.__setattr__(self.method, "server", Server(**server.model_dump()))
        self.layout = self.core.model.layout

    def exchange(self, round, alpha):
        """Client 1's round of so many blocks; returns what the server had before it."""
        sent = self.learner._versions[round].vector
        before = JobId("m", 3, 1, round - 1) if round else None
        self.learner.submit(TrainingJob(JobId("m", 3, 1, round), round, round, alpha, 4, before))
        self.learner.aggregate(round, [JobId("m", 3, 1, round)], round)
        return sent

    def play(self, *args, **options):
        play(self.learner, self.method, *args, **options)
        return self


def through(one, parameters, layout, *key):
    return transmitted(codec(one), parameters, layout, generator(3, *key))


@pytest.mark.parametrize("codecs", [QUANTISED, SPARSE], ids=["quantised", "sparse"])
def test_what_the_server_adds_up_is_exactly_what_was_decoded(tiny, codecs):
    seen = Watched(tiny, coded("fedavg", codecs)).play(1)
    layout, count = seen.layout, seen.layout.parameter_count
    start = through(codecs["down"], seen.core.initial[:count], layout, "codec down", 0, "model")
    for task, result, delta in zip(seen.tasks, seen.results, seen.deltas[0], strict=True):
        assert torch.equal(task.start[:count], start)
        change = (result.final - task.start)[:count]
        assert torch.equal(delta, through(codecs["up"], change, layout, "codec up", task.client, 0, "update"))
        assert not torch.equal(delta, change)


def test_the_servers_own_model_is_not_rounded_by_what_it_sends(tiny):
    """θ_{t+1} = θ_t + mean δ with θ_t as it is: else steps shorter than half a level would be lost for ever."""
    seen = Watched(tiny, coded("fedavg", {"down": {"kind": "quantise", "bits": 4}})).play(1)
    count = seen.layout.parameter_count
    shares = torch.tensor([7.0, 12, 5, 20, 9, 3]) / 56
    change = sum(share * delta for share, delta in zip(shares, seen.deltas[0], strict=True))
    torch.testing.assert_close(seen.learner.model(1)[:count], seen.core.initial[:count] + change)


@pytest.mark.parametrize("late", [(), {(1, 2), (1, 4), (2, 0)}], ids=["all arrive", "some are late"])
def test_with_error_feedback_what_arrived_and_what_is_kept_are_what_was_trained(tiny, late):
    method = coded("fedavg", {"up": {"kind": "top_k", "fraction": 0.05}})
    rounds = 4
    seen = Watched(tiny, method).play(rounds, late=late)
    count = seen.layout.parameter_count
    # A last round forces the late jobs that its own build on, and tells of each client's memory.
    trained, arrived = torch.zeros(6, count), torch.zeros(6, count)
    for task, result in zip(seen.tasks, seen.results, strict=True):
        trained[task.client] += (result.final - task.start)[:count]
    for round, deltas in enumerate(seen.deltas):
        there = [client for client in range(6) if (round, client) not in late]
        for client, delta in zip(there, deltas, strict=True):
            arrived[client] += delta
            assert int((delta != 0).sum()) < 0.1 * count
    kept = {job.client: state["unsent"] for job, state in seen.learner._states.kept.items() if job.dispatch == 3}
    for client in range(6):
        torch.testing.assert_close(arrived[client] + kept[client], trained[client], rtol=1e-4, atol=1e-6)
        assert float(kept[client].abs().max()) > 0


@pytest.mark.full
@pytest.mark.parametrize(("entry", "codecs"), [("fedavg", QUANTISED), ("fedbr", SPARSE), ("scaffold", BOTH)], ids=str)
def test_engine_and_order_of_jobs_change_no_bit_under_codecs(tiny, entry, codecs):
    method = tiny.method(coded(entry, codecs))
    one = play(tiny.core().learner(method), method, 2)
    assert torch.equal(one.model(2), play(tiny.core("parallel", 3).learner(method), method, 2, order=-1).model(2))


def test_clients_side_by_side_send_the_same_up_to_a_step_here_and_there(tiny):
    method = tiny.method(coded("fedavg", QUANTISED))
    one, other = (Watched(tiny, coded("fedavg", QUANTISED), engine).play(1) for engine in ("sequential", "batched"))
    assert method.codecs == one.method.codecs
    for delta, beside in zip(one.deltas[0], other.deltas[0], strict=True):
        # Rounding in the training may push a number over the edge of a step; very few lie so close to one.
        assert float(torch.isclose(delta, beside, rtol=1e-3, atol=1e-6).float().mean()) > 0.99


@pytest.mark.parametrize(
    ("entry", "codecs"),
    few_of([*((each, BOTH) for each in METHODS), ("fedavg", QUANTISED), ("fedbr", SPARSE)], [("scaffold", BOTH)]),
    ids=str,
)
def test_a_restored_learner_goes_on_to_the_same_bits_under_codecs(tiny, entry, codecs):
    method = tiny.method(coded(entry, codecs), epochs=1)
    whole = play(tiny.core().learner(method), method, clients=range(3))

    class Restored:
        def __init__(self):
            self.learner = tiny.core().learner(method)

        def __getattr__(self, name):
            return getattr(self.learner, name)

        def aggregate(self, *args):
            version = self.learner.aggregate(*args)
            tensors, facts = self.learner.snapshot()
            self.learner = tiny.core().learner(method)
            self.learner.restore({name: tensor.clone() for name, tensor in tensors.items()}, facts)
            return version

    assert torch.equal(whole.model(3), play(Restored(), method, clients=range(3)).model(3))


def test_fedbrs_update_leads_from_what_the_server_sent_last_of_each_block(tiny):
    codecs = {"up": {"kind": "quantise", "bits": 8}, "down": {"kind": "quantise", "bits": 8}}
    seen = Watched(tiny, coded("fedbr", codecs))
    layout, count = seen.layout, seen.layout.parameter_count
    sent = [seen.exchange(round, alpha) for round, alpha in enumerate((3, 1, 2))]
    # Round 2 sent blocks 2 and 3 anew; block 1 came in round 0.
    reference = layout.splice(sent[0], sent[2], 1)
    own = layout.splice(seen.results[1].final, sent[2], 1)
    assert torch.equal(seen.tasks[2].start, own)
    change = (seen.results[2].final - reference)[:count]
    arrived = through(codecs["up"], change, layout, "codec up", 1, 2, "update")
    torch.testing.assert_close(seen.deltas[2][0], arrived + (reference - sent[2])[:count], rtol=1e-5, atol=1e-7)


def test_what_fedbrs_client_left_out_is_added_only_where_its_own_weights_do_not_hold_it(tiny):
    """Blocks 1 and 2 stay the client's own in round 1: what it left out of them in round 0 is still in its weights."""
    codecs = {"up": {"kind": "top_k", "fraction": 0.05}}
    seen = Watched(tiny, coded("fedbr", codecs))
    layout, count = seen.layout, seen.layout.parameter_count
    sent, kept = [], []
    for round, alpha in enumerate((3, 1)):
        sent.append(seen.exchange(round, alpha))
        kept.append(seen.learner._states.kept[JobId("m", 3, 1, round)]["unsent"])
    reference = layout.splice(sent[0], sent[1], 2)
    third = torch.cat([torch.full((entry.numel,), float(entry.block == 2)) for entry in layout.parameters])
    meant = (seen.results[1].final - reference)[:count] + third * kept[0]
    torch.testing.assert_close(kept[1], meant - through(codecs["up"], meant, layout, "any"), rtol=1e-5, atol=1e-7)


def test_fedadcs_clients_work_the_model_out_from_the_old_one_and_the_mean_delta_as_they_arrived(tiny):
    seen = Watched(tiny, coded({"method": "fedadc", "beta_g": 0.6}, {"down": "quantise"}))
    layout, count = seen.layout, seen.layout.parameter_count
    states, models = [], []

    for round in range(3):
        states.append(seen.learner._server.state["momentum"])
        models.append(seen.learner.model(round)[:count])
        job = TrainingJob(JobId("m", 3, 1, round), round, round, 3, 4, None)
        seen.learner.submit(job)
        seen.learner.aggregate(round, [job.id], round)
    mean_delta = states[2] - (0.6 - 0.8) * states[1]
    mean = through("quantise", mean_delta, layout, "codec down", 2, "mean delta")
    old = through("quantise", models[1], layout, "codec down", 1, "model")
    momentum = mean + (0.6 - 0.8) * through("quantise", states[1], layout, "codec down", 1, "momentum")
    rate = 0.1 * 0.9  # of round 1, which made the mean delta
    torch.testing.assert_close(seen.tasks[2].vectors["momentum"], momentum, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(seen.tasks[2].start[:count], old - rate * momentum, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("upload", "codecs"),
    [("sent", {"up": QUANTISED["up"]}), ("derived", {"up": SPARSE["up"]}), ("derived", {"down": "quantise"})],
)
def test_scaffolds_server_and_clients_agree_on_the_mean_control_variate(tiny, upload, codecs):
    """c is the mean of all clients' c_k (0 for those that never took part), whatever the codecs round."""
    seen = Watched(tiny, coded({"method": "scaffold", "control_upload": upload}, codecs))
    seen.play(3, clients=range(5))
    states = seen.learner._states.kept
    own = {job.client: state["client_control"] for job, state in states.items() if job.dispatch == 2}
    assert len(own) == 5
    torch.testing.assert_close(seen.learner._server.state["control"], sum(own.values()) / 6, rtol=1e-3, atol=1e-4)
    assert bool(seen.uploads[0]) == (upload == "sent")


def test_feddyns_server_and_clients_agree_on_what_each_client_has_added(tiny):
    seen = Watched(tiny, coded("feddyn", {"up": QUANTISED["up"]})).play(3)
    own = [state["drift"] for job, state in seen.learner._states.kept.items() if job.dispatch == 2]
    torch.testing.assert_close(seen.learner._server.state["shift"], sum(own) / 6, rtol=1e-3, atol=1e-5)


def test_a_round_in_which_nothing_arrives_changes_nothing_of_what_clients_receive(tiny):
    method = tiny.method(coded("fedadc", {"down": "quantise"}))
    learner = play(tiny.core().learner(method), method, 2)
    before = learner._versions[2]
    learner.aggregate(2, [], 2)
    assert torch.equal(learner._versions[3].vector, before.vector)


def test_a_models_bytes_are_those_of_its_tensors_buffers_and_short_ones_plain(tiny):
    layout = tiny.core().model.layout
    sizes = encoded_sizes(codec({"kind": "quantise", "bits": 8}), layout)
    # first: 72 weights, batch norm's weight and bias of 8; its mean and variance of 8 are buffers.
    # second: 16·8·9 weights and 16 biases. third: 144·3 weights and 3 biases, which take 7 bytes instead of 12.
    first = (72 + 4) + 2 * (8 + 4) + 4 * (8 + 8)
    assert sizes == ModelSizes((first, (1152 + 4) + (16 + 4), (432 + 4) + (3 + 4)), exact=False)
    assert encoded_sizes(Codecs().up, layout) == ModelSizes(layout.block_bytes())
    # Two thirds of 432: 290 numbers and a bit for each; of three biases all, which are sent plain without their places.
    most = encoded_sizes(codec({"kind": "top_k", "fraction": 0.67}), layout)
    assert most.block_bytes[2] == (290 * 4 + 54) + 12


def test_a_client_that_took_part_is_sent_fedadcs_old_model_again_where_a_codec_rounds(tiny):
    payload = tiny.method("fedadc").payload
    exact, rounded = ModelSizes((10, 20)), ModelSizes((5, 10), exact=False)
    assert [part.name for part in payload.downlink(exact, 5, None, 4).parts] == ["mean delta"]
    assert [part.name for part in payload.downlink(rounded, 5, None, 4).parts] == ["model", "mean delta"]

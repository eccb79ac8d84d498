"""Clients that attack: who they are, what they train on and what they send."""

import warnings

import pytest
import torch

from edgefl.data.attackers import Attack, Attackers, Malicious
from edgefl.data.federated import load_federated
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.rerun.verify import verify
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob

from ..small_runs import Stop, replay, tree
from ..training.conftest import TinyData, tiny_model


def attackers(share=0.25, clients=8, seed=0, **options):
    return Attackers.of([Malicious(malicious=Attack(share=share, **options))], clients, seed)


def test_the_seed_decides_who_attacks():
    drawn = [attackers(seed=seed, kind="noise").clients for seed in range(20)]
    assert {len(each) for each in drawn} == {2}
    assert drawn[0] == attackers(kind="sign_flip").clients
    assert set().union(*drawn) == set(range(8))
    assert Attackers.of([], 8, 0) is None


def test_flipped_labels_are_those_of_the_attackers_alone(small):
    scenario = small()
    data = load_federated(scenario.data, 0)
    found = attackers(kind="label_flip", clients=data.clients)
    flipped = found.data(data)
    for client in range(data.clients):
        mine = torch.from_numpy(data.shards.shard(client))
        honest = data.train.labels[mine]
        expected = data.classes - 1 - honest if client in found.clients else honest
        assert torch.equal(flipped.train.labels[mine], expected)
        # What methods read of a client (FedRS, HeteroFL) fits the labels that it trains with.
        assert flipped.label_counts[client].tolist() == expected.bincount(minlength=data.classes).tolist()
    assert flipped.test is data.test


def test_what_attackers_send():
    start, final = torch.zeros(1000), torch.cat([torch.full((999,), 0.5), torch.tensor([7.0])])
    flip = attackers(kind="sign_flip", scale=3)
    one, honest = min(flip.clients), min(set(range(8)) - flip.clients)
    assert flip.sent(honest, 0, start, final, slice(0, 999)) is final
    changed = flip.sent(one, 0, start, final, slice(0, 999))
    assert torch.equal(changed, torch.cat([torch.full((999,), -1.5), torch.tensor([7.0])]))  # buffers are honest
    noisy = attackers(kind="noise", scale=2)
    noise = [noisy.sent(one, dispatch, start, final, slice(0, 999)) - final for dispatch in (0, 0, 1)]
    assert torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0], noise[2])
    assert float(noise[0].norm()) == pytest.approx(2 * float(final[:999].norm()), rel=0.1)
    assert float(noise[0][999]) == 0


@pytest.mark.parametrize("method", ["moon", {"method": "moon", "codec": {"up": "cast"}}])
def test_an_attacker_keeps_the_model_that_it_trained(method):
    sent, kept = [], []
    for attack in (None, Attackers(Attack(share=0.5, kind="noise"), 0, frozenset([0]))):
        with TrainingCore(TinyData(), tiny_model(), 3, engine="sequential", attackers=attack) as core:
            moon = build_method(method, LocalOptions(epochs=1, batch=4, lr=0.1))
            learner, depth = core.learner(moon), moon.objective.adapt(core.model).depth
            learner.submit(TrainingJob(job := JobId("moon", 3, 0, 0), 0, 0, depth, 2))
            learner.aggregate(0, [job], 0)
            sent.append(learner.model(1))
            kept.append(learner.snapshot()[0]["state/0/previous"])
    assert not torch.equal(*sent)
    assert torch.equal(*kept)


METHODS = ["fedavg", {"method": "scaffold", "as": "states"}, {"method": "fedavg", "as": "krum", "server": "krum"}]


def test_a_run_with_attackers_resumes_to_the_same_bytes_and_keeps_them_in_a_replay(small, tmp_path):
    attack = {"malicious": {"share": 0.5, "kind": "noise"}}
    outage = {"kind": "outage", "link": ["internet", "client/0"], "at": 1, "duration": 1}
    scenario = small(methods=METHODS, failures=[outage, attack])
    honest = run(small(methods=METHODS[:1]), out=tmp_path / "honest")
    expected = run(scenario, out=tmp_path / "expected")
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "run", listeners=[Stop(6)])
    assert tree(resume(tmp_path / "run")) == tree(expected)
    assert verify(expected) == []
    models = [(each / "fedavg" / "seed-0" / "final.safetensors").read_bytes() for each in (honest, expected)]
    assert models[0] != models[1]
    assert verify(replay(expected, {"failures": attack}, tmp_path / "replayed")) == []
    with pytest.raises(UserError, match=r"failures.malicious: training depends on it"):
        replay(expected, {"failures": []}, tmp_path / "refused")


@pytest.mark.parametrize(("expected", "told"), [(1, ["a round has 2 attackers on average"]), (2, [])])
def test_krum_with_fewer_attackers_than_a_round_has_is_mentioned(small, expected, told):
    methods = [{"method": "fedavg", "as": "krum", "server": {"kind": "krum", "malicious": expected}}]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small(failures={"malicious": {"share": 0.4, "kind": "noise"}}, methods=methods, training__cohort=5)
    assert list(dict.fromkeys(str(each.message).partition(", ")[0] for each in caught)) == told


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ([{"malicious": {"share": 0.1, "kind": "noise"}}] * 2, "failures: expected one entry malicious, found 2"),
        ({"malicious": {"share": 0.1, "kind": "label_flip", "scale": 2}}, "scale: expected it with sign_flip or noise"),
        ({"malicious": {"share": 1, "kind": "noise"}}, r"share: expected less than 1, found 1"),
        ({"malicious": {"share": 0.05, "kind": "label_flip"}}, r"malicious\.share: 0\.05 of 8 clients is none"),
        ({"malicius": {"share": 0.1}}, "failures"),
    ],
)
def test_wrong_attacks_are_refused(small, failures, message):
    with pytest.raises(UserError, match=message):
        small(failures=failures)

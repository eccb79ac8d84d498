"""Server updates under stale weights and rates that decay: each against its own derivation in float64."""

import pytest
import torch

from edgefl.training.job import JobId, Mixing

from .test_method_learner import ids, plain_training, start


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

"""Robust server updates against values by hand and formulas with NumPy."""

import numpy as np
import pytest
import torch

from edgefl.errors import UserError
from edgefl.methods.build import server_update
from edgefl.methods.parts.server import RoundFacts
from edgefl.scenario import load_scenario

from .arrived import arrived

X = [10.0, 20.0]
SENT = [[1.0, 0.0], [2.0, -1.0], [3.0, 8.0], [100.0, -50.0]]


def after(server, deltas=SENT, weights=None):
    """The next model; the update may not change what it is given."""
    x, given = torch.tensor(X, dtype=torch.float64), torch.tensor(deltas, dtype=torch.float64)
    shares = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    found, state = server_update(server).update(x.clone(), arrived(given, shares), {}, RoundFacts(0.1, 10))
    assert state == {}
    assert given.tolist() == [list(each) for each in deltas]
    return (found - x).numpy()


@pytest.mark.parametrize(
    ("server", "count", "change"),
    [
        ("median", 4, [2.5, -0.5]),
        ("median", 3, [2.0, 0.0]),
        ("median", 1, [1.0, 0.0]),
        ({"kind": "trimmed_mean", "share": 0.25}, 4, [2.5, -0.5]),
        ({"kind": "trimmed_mean", "share": 0.2}, 4, [26.5, -10.75]),
        # Squared distances: 2 from the first to the second, 68 to the third, 82 from the second to the third.
        ({"kind": "krum", "malicious": 1}, 4, [1.0, 0.0]),
        ({"kind": "krum", "malicious": 1, "select": 2}, 4, [1.5, -0.5]),
        ({"kind": "krum", "select": 9}, 3, [2.0, 7 / 3]),
        ({"kind": "norm_bound", "bound": 1e9}, 4, [26.5, -10.75]),
        ({"kind": "norm_bound", "bound": 0.5}, 1, [0.5, 0.0]),
    ],
)
def test_the_next_model_by_hand(server, count, change):
    np.testing.assert_allclose(after(server, SENT[:count]), change, rtol=0, atol=1e-12)


def test_a_round_s_median_norm_bounds_the_weighted_mean():
    norms = np.linalg.norm(SENT, axis=1)
    scaled = np.array(SENT) * np.minimum(1, np.median(norms) / norms)[:, None]
    weights = [0.1, 0.2, 0.3, 0.4]
    np.testing.assert_allclose(after("norm_bound", weights=weights), weights @ scaled, rtol=0, atol=1e-12)


def test_krum_scores_the_nearest_neighbours():
    draws, clients, malicious = np.random.default_rng(0), 9, 2
    sent = draws.standard_normal((clients, 2))
    distances = ((sent[:, None] - sent[None]) ** 2).sum(axis=2)
    scores = np.sort(distances, axis=1)[:, 1 : clients - malicious - 1].sum(axis=1)
    found = after({"kind": "krum", "malicious": malicious}, sent.tolist())
    np.testing.assert_allclose(found, sent[scores.argmin()], rtol=0, atol=1e-12)


@pytest.mark.parametrize("server", ["median", "trimmed_mean", "krum", "norm_bound"])
def test_an_attacker_moves_the_model_no_further_than_honest_clients(server):
    honest = [[1.0, 1.0], [1.1, 0.9], [0.9, 1.1], [1.0, 0.8]]
    found = after(server if server != "krum" else {"kind": "krum", "malicious": 1}, [*honest, [-1e6, 1e6]])
    assert np.linalg.norm(found) <= max(np.linalg.norm(honest, axis=1))


def test_cells_and_strategies_of_flower_are_refused_by_name():
    with pytest.raises(UserError, match=r"flower: strategies of Flower run .* expected kind: .* krum"):
        server_update({"flower": "Krum"})
    with pytest.raises(UserError, match="server update 'median' needs each client's update on its own"):
        load_scenario("hierarchical_cells", {"methods": [{"method": "fedavg", "server": "median"}]})


def test_as_many_values_are_left_out_as_the_share_says():
    assert server_update({"kind": "trimmed_mean", "share": 0.29}).cut(100) == 29


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"server": {"kind": "krum", "malicious": 1}},
            r"server\.malicious: krum needs 4 updates, and training\.cohort is 3",
        ),
        (
            {"server": {"kind": "krum", "malicious": 1}, "local": {"optimizer": {"kind": "adam", "state": "average"}}},
            r"server\.malicious: krum needs 4",
        ),
        ({"server": "trimmed_mean"}, r"server\.share: 0\.2 of training\.cohort \(3\) leaves out none"),
    ],
)
def test_too_few_updates_are_refused(small, changes, message):
    with pytest.raises(UserError, match=message):
        small(methods=[{"method": "fedavg", **changes}])
    small(methods=[{"method": "fedavg", **changes}], training__cohort=5)
    with pytest.raises(UserError, match=r"methods\.0\.server\..* protocol\.buffer"):
        small(
            methods=[{"method": "fedavg", **changes}],
            training__cohort=5,
            protocol={"kind": "asynchronous", "buffer": 2},
        )

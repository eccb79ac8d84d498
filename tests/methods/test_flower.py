"""Flower's strategies as server updates, against edgefl's own updates and formulas computed here with NumPy."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.methods.build import build_method, method_model, server_update
from edgefl.methods.fedavg import Mean
from edgefl.methods.fedavgm import FedAvgM
from edgefl.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from edgefl.methods.flower import KEPT
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.server import SERVER_UPDATES, RoundFacts
from edgefl.methods.recipe import METHODS
from edgefl.scenario import load_scenario
from edgefl.training.aggregation import checked_update

from ..flower.runs import needs_flwr
from .arrived import arrived

CLIENTS, SIZE, ROUNDS = 7, 6, 4
LOSSES = [0.5, 2.0, 1.0, 0.1, 3.0, 0.7, 1.5]


def strategy(name, **options):
    return server_update({"flower": name, **options})


def step(server, x, deltas, weights, state, round=0, clients=CLIENTS, lr=0.1):
    """One synchronous update."""
    arrivals = arrived(deltas, weights, lr=lr, losses=(LOSSES * 4)[:clients])
    return server.update(x, arrivals, state, RoundFacts(lr, clients, round))


def draws(seed, clients=CLIENTS, dtype=torch.float64):
    """A model, the clients' deltas and their weights."""
    random = torch.Generator().manual_seed(seed)
    weights = torch.rand(clients, generator=random, dtype=dtype) + 0.1
    x = torch.randn(SIZE, generator=random, dtype=dtype)
    return x, torch.randn(clients, SIZE, generator=random, dtype=dtype), weights / weights.sum()


def models(server, dtype=torch.float64, state=None):
    """The models of a few rounds, each with other deltas."""
    x, found = draws(0, dtype=dtype)[0], []
    state = server.begin(x) if state is None else state
    for round in range(ROUNDS):
        _, deltas, weights = draws(round + 1, dtype=dtype)
        x, state = step(server, x, deltas, weights, state, round)
        found.append(x)
    return torch.stack(found)


def only(name, **options):
    """The model after one round of a strategy, and the clients' models and weights."""
    x, deltas, weights = draws(3)
    after, state = step(strategy(name, **options), x, deltas, weights, {})
    assert state == {}
    return after.numpy(), (x + deltas).numpy(), weights.numpy()


class TestWithFlower:
    pytestmark = needs_flwr

    @pytest.mark.parametrize(("dtype", "difference"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
    def test_fedavg_is_the_mean_up_to_rounding(self, dtype, difference):
        # Flower averages the clients' models, edgefl their differences from the server's: other roundings.
        found, expected = models(strategy("FedAvg"), dtype), models(Mean(), dtype)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=difference)

    def test_fedavgm_is_edgefl_s(self):
        ours = FedAvgM(beta=0.6, server_lr=0.5)
        theirs = strategy("FedAvgM", server_momentum=0.6, server_learning_rate=0.5)
        torch.testing.assert_close(models(theirs), models(ours), rtol=0, atol=1e-13)

    @pytest.mark.parametrize(
        ("name", "ours"),
        [
            ("FedYogi", FedYogi(server_lr=0.05, beta_1=0.8, beta_2=0.9, tau=0.01)),
            ("FedAdagrad", FedAdagrad(server_lr=0.05, beta_1=0, tau=0.01)),
        ],
    )
    def test_adaptive_strategies_are_edgefl_s_with_a_second_moment_that_begins_with_zero(self, name, ours):
        options = {"eta": 0.05, "tau": 0.01, **({"beta_1": 0.8, "beta_2": 0.9} if name == "FedYogi" else {})}
        start = {"first": torch.zeros(SIZE, dtype=torch.float64), "second": torch.zeros(SIZE, dtype=torch.float64)}
        found = models(strategy(name, **options))
        torch.testing.assert_close(found, models(ours, state=start), rtol=0, atol=1e-13)
        assert not torch.allclose(found, models(ours), atol=1e-6)

    def test_fedadam_corrects_the_bias_of_both_moments_by_the_number_of_the_round(self):
        server = strategy("FedAdam", eta=0.05, beta_1=0.8, beta_2=0.9, tau=0.01)
        x = draws(0)[0]
        state, plain = server.begin(x), {"first": torch.zeros_like(x), "second": torch.zeros_like(x)}
        for round in range(ROUNDS):
            _, deltas, weights = draws(round + 1)
            rate = 0.05 * (1 - 0.9 ** (round + 2)) ** 0.5 / (1 - 0.8 ** (round + 2))
            ours = FedAdam(server_lr=rate, beta_1=0.8, beta_2=0.9, tau=0.01)
            expected, plain = step(ours, x, deltas, weights, plain, round)
            x, state = step(server, x, deltas, weights, state, round)
            torch.testing.assert_close(x, expected, rtol=0, atol=1e-13)

    @settings(max_examples=10, deadline=None)
    @given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.25, 0.45]))
    def test_fedtrimmedavg_is_the_mean_without_the_extremes_of_each_number(self, seed, clients, beta):
        x, deltas, weights = draws(seed, clients)
        after, _ = step(strategy("FedTrimmedAvg", beta=beta), x, deltas, weights, {}, clients=clients)
        sent, cut = np.sort((x + deltas).numpy(), axis=0), int(beta * clients)
        np.testing.assert_allclose(after.numpy(), sent[cut : clients - cut].mean(axis=0), atol=1e-13)

    @settings(max_examples=10, deadline=None)
    @given(st.integers(0, 1000), st.integers(1, 12))
    def test_fedmedian_is_the_median_of_each_number_and_needs_no_order_of_clients(self, seed, clients):
        x, deltas, weights = draws(seed, clients)
        after, _ = step(strategy("FedMedian"), x, deltas, weights, {}, clients=clients)
        sent = np.sort((x + deltas).numpy(), axis=0)
        middle = (sent[(clients - 1) // 2] + sent[clients // 2]) / 2
        np.testing.assert_allclose(after.numpy(), middle, atol=1e-13)
        other, _ = step(strategy("FedMedian"), x, deltas.flip(0), weights.flip(0), {}, clients=clients)
        assert torch.equal(after, other)

    def test_krum_returns_the_model_whose_neighbours_are_nearest(self):
        after, sent, _ = only("Krum", num_malicious_nodes=1)
        np.testing.assert_allclose(after, sent[scores(sent, malicious=1).argmin()], atol=1e-14)

    def test_multikrum_averages_the_best_models_with_their_weights(self):
        after, sent, weights = only("MultiKrum", num_malicious_nodes=1, num_nodes_to_select=3)
        best = np.argsort(scores(sent, malicious=1))[:3]
        np.testing.assert_allclose(after, np.average(sent[best], axis=0, weights=weights[best]), atol=1e-13)

    def test_bulyan_averages_the_numbers_nearest_the_median_of_krum_s_choice(self):
        after, sent, _ = only("Bulyan", num_malicious_nodes=1)
        chosen = sent[np.argsort(scores(sent, malicious=1))[: CLIENTS - 2]]
        nearest = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)[: CLIENTS - 4]
        np.testing.assert_allclose(after, np.take_along_axis(chosen, nearest, 0).mean(axis=0), atol=1e-13)

    @pytest.mark.parametrize("lr", [0.1, 0.02])
    def test_qfedavg_weighs_clients_by_their_loss(self, lr):
        # Li et al. 2020 (q-FFL), Alg. 2, with L = 1/η.
        x, deltas, weights = draws(3)
        after, _ = step(strategy("QFedAvg", q=0.7), x, deltas, weights, {}, lr=lr)
        gradients, losses = -deltas.numpy() / lr, np.array(LOSSES)
        h = 0.7 * losses ** (0.7 - 1) * (gradients**2).sum(axis=1) + losses**0.7 / lr
        expected = x.numpy() - (losses[:, None] ** 0.7 * gradients).sum(axis=0) / h.sum()
        np.testing.assert_allclose(after, expected, rtol=1e-8)

    @pytest.mark.parametrize("name", KEPT)
    def test_every_strategy_keeps_shapes_and_types_and_arguments_and_saves_all_that_it_keeps(self, name):
        dtype = torch.float32
        server = strategy(name, **({"server_momentum": 0.5} if name == "FedAvgM" else {}))
        x, deltas, weights = draws(1, dtype=dtype)
        state = server.begin(x)
        copies = [each.clone() for each in (x, deltas, weights)]
        after, kept = checked_update(step(server, x, deltas, weights, dict(state)), x, ())
        assert [torch.equal(*each) for each in zip((x, deltas, weights), copies, strict=True)] == [True] * 3
        assert set(kept) == set(state) == set(KEPT[name])
        assert all(not torch.equal(kept[each], state[each]) and kept[each].dtype == dtype for each in kept)
        again, _ = step(server, x, deltas, weights, dict(state))
        assert torch.equal(after, again)

    def test_too_few_results_leave_the_model_as_in_flower_and_a_warning_says_so(self):
        x, deltas, weights = draws(1, clients=2)
        with pytest.warns(UserWarning, match=r"Bulyan does not aggregate 2 result\(s\)"):
            after, _ = step(strategy("Bulyan"), x, deltas, weights, {}, clients=2)
        assert torch.equal(after, x)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"flower": "FedTrimmedAvg", "beta": 0.5}, "beta: expected less than 0.5, found 0.5"),
            ({"flower": "FedTrimmedAvg", "bta": 0.1}, "bta: unknown key; did you mean 'beta'?"),
            ({"flower": "Krum", "num_malicious_nodes": -1}, "expected 0 or more, found -1"),
            ({"flower": "FedAdam", "eta_l": 0.1}, "eta_l: edgefl decides this itself"),
            ({"flower": "Bulyan", "selection_rule": "f"}, "selection_rule: edgefl decides this itself"),
        ],
    )
    def test_options_are_those_of_the_strategy(self, options, message):
        with pytest.raises(UserError) as caught:
            server_update(options)
        assert message in str(caught.value)

    def test_the_resolved_scenario_has_all_options_and_is_read_back(self):
        server = {"flower": "FedAdam", "eta": 0.5}
        entry = load_scenario("5g_100clients", {"methods": [{"method": "fedavg", "server": server}]}).methods[0].entry
        whole = {"kind": "flower", "flower": "FedAdam", "eta": 0.5, "beta_1": 0.9, "beta_2": 0.99, "tau": 0.001}
        assert entry["server"] == whole
        assert build_method(entry, LocalOptions()).server == server_update(server) == server_update(whole)

    @pytest.mark.parametrize("name", ["FedAdam", "Krum"])
    def test_hierarchical_rounds_take_only_strategies_of_the_mean(self, name):
        changes = {
            "protocol": {"kind": "hierarchical"},
            "network.topology": {
                "kind": "cells", "cells": 2, "server": {"down": "100 Mbit/s", "up": "100 Mbit/s"},
                "backhaul": {"down": "40 Mbit/s", "up": "40 Mbit/s"}, "latency": "20 ms",
            },
            "methods": [{"method": "fedavg", "server": {"flower": name}}],
        }  # fmt: skip
        if name == "FedAdam":
            load_scenario("5g_100clients", changes)
            return
        with pytest.raises(UserError, match=r"server: server update 'flower' needs each client's update on its own"):
            load_scenario("5g_100clients", changes)


def scores(sent, malicious):
    """Krum's score of each model: its squared distances to its n - f - 2 nearest ones (Blanchard et al. 2017)."""
    distances = ((sent[:, None] - sent[None]) ** 2).sum(axis=2)
    return np.sort(distances, axis=1)[:, 1 : len(sent) - malicious - 1].sum(axis=1)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("flower", "flower: this key is missing"),
        ({"flower": "FedTrimedAvg"}, "flower: unknown strategy 'FedTrimedAvg'; did you mean 'FedTrimmedAvg'?"),
        ({"kind": "mean", "flower": "FedAvg"}, "flower: unknown key"),
    ],
)
def test_wrong_names_are_refused_without_the_package(entry, message):
    with pytest.raises(UserError) as caught:
        server_update(entry)
    assert str(caught.value).startswith(message)


def test_without_the_package_a_strategy_is_refused_and_everything_else_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.serverapp.strategy", None)
    with pytest.raises(UserError, match=r"flwr is not installed: pip install 'edgefl\[fl"):
        server_update({"flower": "FedAvg"})
    assert server_update("mean") == Mean()
    assert "flower" in SERVER_UPDATES.names()


def test_the_schema_of_a_method_lists_the_strategies():
    choices = method_model(METHODS["fedavg"]).model_json_schema()["properties"]["server"]["anyOf"]
    (found,) = [each for each in choices if each.get("properties", {}).get("kind") == {"const": "flower"}]
    assert found["properties"]["flower"]["enum"] == sorted(KEPT)
    assert found["additionalProperties"] is True

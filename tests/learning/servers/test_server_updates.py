"""Server updates against hand-computed rounds and the identities between them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.learning.servers.base import SERVER_UPDATES, RoundFacts, ServerUpdate
from edgefl.learning.servers.fedadc import FedAdcServer
from edgefl.learning.servers.fedavgm import FedAvgM
from edgefl.learning.servers.mean import Mean, mean_delta
from edgefl.learning.servers.slowmo import SlowMo


def facts(lr: float = 0.1, clients: int = 10, steps: tuple[int, ...] = (4, 4, 4)) -> RoundFacts:
    return RoundFacts(lr, clients, torch.tensor(steps))


def rounds(server: ServerUpdate, lrs: list[float], seed: int = 0) -> list[torch.Tensor]:
    """Models after rounds of random deltas of three clients."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(4, generator=draws, dtype=torch.float64)
    state, weights, models = server.begin(x), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), []
    for lr in lrs:
        deltas = torch.randn(3, 4, generator=draws, dtype=torch.float64)
        x, state = server.update(x, deltas, weights, state, facts(lr))
        models.append(x)
    return models


def test_the_mean_is_the_weighted_mean_of_the_clients_models() -> None:
    x, deltas = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [-1.0, 4.0]])
    weights = torch.tensor([0.75, 0.25])
    after, _ = Mean().update(x, deltas, weights, {}, facts())
    torch.testing.assert_close(after, 0.75 * (x + deltas[0]) + 0.25 * (x + deltas[1]))


@given(st.integers(1, 8), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_mean_delta_is_a_matrix_product(clients, size, seed) -> None:
    draws = torch.Generator().manual_seed(seed)
    deltas = torch.randn(clients, size, generator=draws, dtype=torch.float64)
    weights = torch.rand(clients, generator=draws, dtype=torch.float64)
    torch.testing.assert_close(mean_delta(deltas, weights), weights @ deltas)


def test_fedavgm_by_hand() -> None:
    server, x, one = FedAvgM(beta=0.5), torch.tensor([1.0]), torch.tensor([1.0])
    state = server.begin(x)
    x, state = server.update(x, torch.tensor([[2.0]]), one, state, facts())
    assert (float(x), float(state["momentum"])) == (3.0, 2.0)
    x, state = server.update(x, torch.tensor([[-4.0]]), one, state, facts())
    assert (float(x), float(state["momentum"])) == (0.0, -3.0)


def test_slowmo_by_hand_keeps_momentum_in_units_of_the_gradient() -> None:
    server, x, one = SlowMo(beta=0.5, alpha=2.0), torch.tensor([1.0]), torch.tensor([1.0])
    x, state = server.update(x, torch.tensor([[-1.0]]), one, server.begin(x), facts(lr=0.5))
    assert (float(x), float(state["momentum"])) == (-1.0, 2.0)  # m = 1/0.5; x = 1 - 2 · 0.5 · 2
    x, state = server.update(x, torch.tensor([[-1.0]]), one, state, facts(lr=0.25))
    assert (float(x), float(state["momentum"])) == (-3.5, 5.0)  # m = 0.5 · 2 + 1/0.25; x = -1 - 2 · 0.25 · 5


def test_slowmo_is_fedavgm_at_a_constant_rate_and_not_when_it_decays() -> None:
    slow, plain = SlowMo(beta=0.7), FedAvgM(beta=0.7)
    torch.testing.assert_close(rounds(slow, [0.3] * 5), rounds(plain, [0.3] * 5))
    assert not torch.allclose(rounds(slow, [0.3, 0.1])[-1], rounds(plain, [0.3, 0.1])[-1])


def test_fedadc_without_a_local_share_is_slowmo() -> None:
    lrs = [0.4, 0.3, 0.2, 0.1]
    fedadc, slowmo = FedAdcServer(beta_g=0.8, beta_l=0.0, alpha=0.9), SlowMo(beta=0.8, alpha=0.9)
    assert torch.equal(torch.stack(rounds(fedadc, lrs)), torch.stack(rounds(slowmo, lrs)))


def test_fedadc_with_equal_shares_takes_the_mean_and_its_momentum_is_the_step() -> None:
    server = FedAdcServer(beta_g=0.8, beta_l=0.8)
    torch.testing.assert_close(rounds(server, [0.4, 0.2, 0.1]), rounds(Mean(), [0.4, 0.2, 0.1]))
    x, weights = torch.ones(4), torch.tensor([0.2, 0.5, 0.3])
    state = {"momentum": torch.randn(4, generator=torch.Generator().manual_seed(1))}
    after, state = server.update(x, torch.arange(12.0).reshape(3, 4), weights, state, facts(0.2))
    torch.testing.assert_close(state["momentum"], (x - after) / 0.2)


def test_fedadc_on_a_quadratic_is_heavy_ball_on_the_mean_gradient() -> None:
    """H = 1, blue, β_g = β_l: m' = ḡ + β m and x' = x - η m', the textbook's heavy ball on Σ w_k f_k."""
    lr, beta, targets = 0.1, 0.6, torch.tensor([[1.0], [3.0]])
    weights = torch.tensor([0.5, 0.5])
    server, x = FedAdcServer(beta_g=beta, beta_l=beta), torch.tensor([0.0])
    state, ball, velocity = server.begin(x), 0.0, 0.0
    for _ in range(6):
        finals = x - lr * ((x - targets) + beta * state["momentum"])
        x, state = server.update(x, finals - x, weights, state, facts(lr, steps=(1, 1)))
        velocity = (ball - 2.0) + beta * velocity
        ball -= lr * velocity
    assert float(x) == pytest.approx(ball, rel=1e-5)


@pytest.mark.parametrize("name", SERVER_UPDATES.names())
def test_no_update_touches_its_arguments_or_forgets_its_state(name) -> None:
    server = SERVER_UPDATES[name]()
    x, deltas, weights = torch.ones(3), torch.full((2, 3), 0.5), torch.tensor([0.5, 0.5])
    state = server.begin(x)
    before = {key: value.clone() for key, value in state.items()}
    after, new = server.update(x, deltas, weights, dict(state), facts(steps=(2, 3)))
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(deltas, torch.full((2, 3), 0.5))
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert set(server.broadcasts) <= set(state) <= set(new)
    assert after.shape == x.shape
    assert bool((after > x).all())  # every rule goes where all clients went

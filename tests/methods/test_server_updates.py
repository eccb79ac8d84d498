"""Server updates against hand-computed rounds and the identities between them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.fedadc import FedAdcRule, FedAdcServer
from edgefl.methods.fedavg import Mean
from edgefl.methods.fedavgm import FedAvgM
from edgefl.methods.feddyn import Drift, FedDynServer
from edgefl.methods.fedgkd import FedGkdServer
from edgefl.methods.fednova import FedNova
from edgefl.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from edgefl.methods.fedprox import FedProx
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.server import SERVER_UPDATES, Arrival, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS
from edgefl.methods.scaffold import ControlVariate, Scaffold, ScaffoldRule
from edgefl.methods.slowmo import SlowMo

from .arrived import arrived


def step(server, x, deltas, weights, state, lr=0.1, clients=10, **options):
    """One synchronous update."""
    arrivals = arrived(deltas, weights, lr=lr, received=state, **options)
    return server.update(x, arrivals, state, RoundFacts(lr, clients))


def rounds(server: ServerUpdate, lrs: list[float], seed: int = 0) -> list[torch.Tensor]:
    """Models after rounds of random deltas of three clients."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(4, generator=draws, dtype=torch.float64)
    state, weights, models = server.begin(x), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), []
    for lr in lrs:
        deltas = torch.randn(3, 4, generator=draws, dtype=torch.float64)
        x, state = step(server, x, deltas, weights, state, lr)
        models.append(x)
    return models


def test_the_mean_is_the_weighted_mean_of_the_clients_models() -> None:
    x, deltas = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [-1.0, 4.0]])
    weights = torch.tensor([0.75, 0.25])
    after, _ = step(Mean(), x, deltas, weights, {})
    torch.testing.assert_close(after, 0.75 * (x + deltas[0]) + 0.25 * (x + deltas[1]))


def test_fedavgm_by_hand() -> None:
    server, x, one = FedAvgM(beta=0.5), torch.tensor([1.0]), torch.tensor([1.0])
    state = server.begin(x)
    x, state = step(server, x, torch.tensor([[2.0]]), one, state)
    assert (float(x), float(state["momentum"])) == (3.0, 2.0)
    x, state = step(server, x, torch.tensor([[-4.0]]), one, state)
    assert (float(x), float(state["momentum"])) == (0.0, -3.0)


def test_slowmo_by_hand_keeps_momentum_in_units_of_the_gradient() -> None:
    server, x, one = SlowMo(beta=0.5, alpha=2.0), torch.tensor([1.0]), torch.tensor([1.0])
    x, state = step(server, x, torch.tensor([[-1.0]]), one, server.begin(x), lr=0.5)
    assert (float(x), float(state["momentum"])) == (-1.0, 2.0)  # m = 1/0.5; x = 1 - 2 · 0.5 · 2
    x, state = step(server, x, torch.tensor([[-1.0]]), one, state, lr=0.25)
    assert (float(x), float(state["momentum"])) == (-3.5, 5.0)  # m = 0.5 · 2 + 1/0.25; x = -1 - 2 · 0.25 · 5


def test_fedadc_without_a_local_share_is_slowmo() -> None:
    lrs = [0.4, 0.3, 0.2, 0.1]
    fedadc, slowmo = FedAdcServer(beta_g=0.8, beta_l=0.0, alpha=0.9), SlowMo(beta=0.8, alpha=0.9)
    assert torch.equal(torch.stack(rounds(fedadc, lrs)), torch.stack(rounds(slowmo, lrs)))


def test_fedadc_on_a_quadratic_is_heavy_ball_on_the_mean_gradient() -> None:
    """β_g = β_l: m' = Σ w_k ḡ_k + β m and x' = x - η m', the textbook's heavy ball on Σ w_k f_k, for any H_k and w_k.

    ḡ_k is the sum of the gradients in the H_k steps of client k, here of constants.
    """
    lr, beta, gradients = 0.1, 0.6, (1.0, -3.0)
    weights, counts = torch.tensor([0.3, 0.7]), (1, 4)
    server, x = FedAdcServer(beta_g=beta, beta_l=beta), torch.tensor([0.0])
    rule, state, ball, velocity = FedAdcRule(beta_l=beta), server.begin(x), 0.0, 0.0
    for _ in range(6):
        finals = []
        for gradient, count in zip(gradients, counts, strict=True):
            memory = rule.begin(x, state, LocalOptions(), count)
            finals.append(x.clone())
            for _ in range(count):
                finals[-1] = rule.update(finals[-1], torch.tensor([gradient]), memory, LocalOptions(), lr)
        x, state = step(server, x, torch.stack(finals) - x, weights, state, lr, steps=counts)
        velocity = (0.3 * 1 - 0.7 * 4 * 3) + beta * velocity
        ball -= lr * velocity
    assert float(x) == pytest.approx(ball, rel=1e-5)


@pytest.mark.parametrize("name", sorted({*SERVER_UPDATES.names()} - {"flower"}))  # test_flower.py tries its strategies
def test_no_update_touches_its_arguments_or_forgets_its_state(name) -> None:
    server = SERVER_UPDATES[name]()
    x, deltas, weights = torch.ones(3), torch.full((2, 3), 0.5), torch.tensor([0.5, 0.5])
    state = server.begin(x)
    before = {key: value.clone() for key, value in state.items()}
    after, new = step(server, x, deltas, weights, dict(state), steps=(2, 3))
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(deltas, torch.full((2, 3), 0.5))
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert set(server.broadcasts) <= set(state) <= set(new)
    assert after.shape == x.shape
    assert bool((after > x).all())  # every rule goes where all clients went


def test_fedadam_s_first_two_steps_by_hand() -> None:
    """m_0 = 0, v_0 = τ² with τ = 0.1; deltas 1 and -0.5; β1 = 0.9, β2 = 0.99, η_s = 0.01."""
    server, x, one = FedAdam(tau=0.1), torch.tensor([0.0], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    state = server.begin(x)
    x, state = step(server, x, torch.tensor([[1.0]], dtype=torch.float64), one, state)
    # m = 0.1, v = 0.99 · 0.01 + 0.01 · 1 = 0.0199
    assert float(x) == pytest.approx(0.01 * 0.1 / (0.0199**0.5 + 0.1), rel=1e-12)
    before = float(x)
    x, state = step(server, x, torch.tensor([[-0.5]], dtype=torch.float64), one, state)
    # m = 0.9 · 0.1 - 0.1 · 0.5 = 0.04, v = 0.99 · 0.0199 + 0.01 · 0.25 = 0.022201
    assert float(x) == pytest.approx(before + 0.01 * 0.04 / (0.022201**0.5 + 0.1), rel=1e-12)


@pytest.mark.parametrize(
    ("server", "second"),
    [(FedYogi(tau=0.1), (0.01 + 0.01 * 1, 0.02 + 0.01 * 0.25)), (FedAdagrad(tau=0.1), (1.01, 1.26))],
)
def test_the_second_moments_of_fedyogi_and_fedadagrad_by_hand(server, second) -> None:
    """Yogi adds (1-β2) Δ² while Δ² exceeds v; Adagrad sums Δ²."""
    x, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    state = server.begin(x)
    for delta, wanted in zip((1.0, -0.5), second, strict=True):
        x, state = step(server, x, torch.tensor([[delta]], dtype=torch.float64), one, state)
        assert float(state["second"]) == pytest.approx(wanted, rel=1e-12)


@given(st.integers(1, 9), st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_fednova_with_equal_steps_is_fedavg(steps, seed) -> None:
    draws = torch.Generator().manual_seed(seed)
    x, deltas = torch.randn(5, generator=draws), torch.randn(3, 5, generator=draws)
    weights = torch.tensor([0.2, 0.5, 0.3])
    for server in (FedNova(), FedNova(local_momentum=0.9)):
        after, _ = step(server, x, deltas, weights, {}, steps=(steps,) * 3)
        torch.testing.assert_close(after, step(Mean(), x, deltas, weights, {})[0])


def test_fednova_takes_mean_gradients_times_the_mean_number_of_steps() -> None:
    """Clients with constant gradients g_k and H_k plain steps: θ - η τ_eff Σ w_k g_k."""
    gradients, steps, weights = torch.tensor([[1.0], [-3.0]]), (2, 10), torch.tensor([0.75, 0.25])
    deltas = -0.1 * gradients * torch.tensor([[2.0], [10.0]])
    after, _ = step(FedNova(), torch.zeros(1), deltas, weights, {}, steps=steps)
    assert float(after) == pytest.approx(-0.1 * (0.75 * 2 + 0.25 * 10) * (0.75 * 1 - 0.25 * 3), abs=1e-7)


def test_fednova_normalises_steps_of_different_rates() -> None:
    """Constant gradients and plain steps: θ moves by -(Σ w η H) Σ w g."""
    gradients, rates, steps = (1.0, -3.0), (0.1, 0.2), (2, 10)
    deltas = torch.tensor([[-rate * count * g] for rate, count, g in zip(rates, steps, gradients, strict=True)])
    each = [Arrival(client=k, rate=rates[k], steps=steps[k], weight=0.5) for k in (0, 1)]
    after, _ = FedNova().update(torch.zeros(1), Arrivals(each, deltas, deltas), {}, RoundFacts(0.1, 10))
    assert float(after) == pytest.approx(-(0.5 * 0.2 + 0.5 * 2.0) * (0.5 * 1.0 - 0.5 * 3.0))


@pytest.mark.parametrize("steps", [1, 13])
def test_fednova_s_effective_steps_are_the_sum_of_what_each_gradient_moves(steps) -> None:
    """Run heavy ball on a unit gradient: the distance travelled in units of η."""
    velocity = travelled = 0.0
    for _ in range(steps):
        velocity = 0.8 * velocity + 1
        travelled += velocity
    tau = FedNova(local_momentum=0.8).effective_steps(torch.tensor([float(steps)]))
    assert float(tau) == pytest.approx(travelled, rel=1e-5)


@pytest.mark.parametrize(
    ("momentum", "mu", "decay"),
    [(0.0, 0.5, 0.0), (0.8, 0.5, 0.0), (0.0, 10.0, 0.0), (0.5, 0.0, 0.0), (0.0, 0.0, 0.5), (0.8, 0.5, 0.1)],
)
def test_fednova_under_a_pull_has_the_gradients_mean_direction(momentum, mu, decay) -> None:
    """Clients whose gradient is g_k everywhere move by g_k τ_k, whatever their steps: the mean is Σ w_k g_k."""
    local, rate = LocalOptions(momentum=momentum, weight_decay=decay), 0.1
    entry = {"method": "fedprox", "mu": mu, "server": {"kind": "fednova", "local_momentum": momentum}}
    server, weights, gradients, steps = build_method(entry, local).server, (0.25, 0.75), (-1.0, 3.0), (1, 7)
    deltas = []
    for gradient, count in zip(gradients, steps, strict=True):
        parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.SGD([parameter], lr=rate, momentum=momentum, weight_decay=decay)
        for _ in range(count):
            optimizer.zero_grad()
            (gradient * parameter + 0.5 * mu * parameter**2).sum().backward()
            optimizer.step()
        deltas.append(parameter.detach())
    each = [Arrival(client=k, rate=rate, steps=steps[k], weight=weights[k]) for k in (0, 1)]
    x, moved = torch.zeros(1, dtype=torch.float64), torch.stack(deltas)
    after, _ = server.update(x, Arrivals(each, moved, moved), {}, RoundFacts(rate, 10))
    tau = [float(-delta / gradient) for delta, gradient in zip(deltas, gradients, strict=True)]
    mean = sum(w * g for w, g in zip(weights, gradients, strict=True))
    assert float(after) == pytest.approx(-mean * sum(w * t for w, t in zip(weights, tau, strict=True)), rel=1e-9)


def test_fednova_refuses_steps_whose_weight_is_not_known(monkeypatch) -> None:
    class Near(FedProx):
        proximal_weight = property(lambda self: super(FedProx, self).proximal_weight)

    class Longer(Sgd):
        def update(self, parameters, gradient, memory, options, lr):
            return parameters - 2 * lr * gradient

    recipe = METHODS["fedprox"]
    for change, said in (({"objective": Near}, "no `proximal_weight`"), ({"rule": Longer}, "Longer has steps")):
        monkeypatch.setitem(METHODS._parts, "fedprox", replace(recipe, **change))
        with pytest.raises(UserError, match=f"needs local steps of a known weight, and .*{said}"):
            build_method({"method": "fedprox", "server": "fednova"}, LocalOptions())
    monkeypatch.setitem(METHODS._parts, "fedprox", recipe)
    for local in (LocalOptions(clip_norm=1.0), LocalOptions(weight_decay=0.1, no_decay=("*.bias",))):
        with pytest.raises(UserError, match=r"no effective number of steps for (clip_norm|no_decay) with"):
            build_method({"method": "fedprox", "server": "fednova"}, local)
    build_method({"method": "fedavg", "server": "fednova"}, LocalOptions(clip_norm=1.0, weight_decay=0.1))


def cohorts(rounds: int, clients: int, size: int) -> list[list[int]]:
    draws = torch.Generator().manual_seed(3)
    return [torch.randperm(clients, generator=draws)[:size].sort().values.tolist() for _ in range(rounds)]


def test_scaffold_s_control_variates_average_to_the_server_s() -> None:
    """Through rounds of partial participation with different numbers of steps, c = (1/N) Σ c_k over all clients."""
    clients, lr, server, kept = 6, 0.05, Scaffold(), ControlVariate()
    rule, options = ScaffoldRule(), LocalOptions(weight_decay=0.01)
    targets = torch.randn(clients, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.zeros(4, dtype=torch.float64)
    state, controls = server.begin(x), [kept.first(x, 4) for _ in range(clients)]
    for cohort in cohorts(5, clients, 3):
        finals, steps = [], [2 + client for client in cohort]
        for client, count in zip(cohort, steps, strict=True):
            vectors = {**state, **controls[client]}
            memory, y = rule.begin(x, vectors, options, count), x.clone()
            for _ in range(count):
                y = rule.update(y, y - targets[client], memory, options, lr)
            controls[client] = kept.after(vectors, x, y, lr, count)
            finals.append(y)
        deltas = torch.stack(finals) - x
        weights = torch.full((3,), 1 / 3, dtype=torch.float64)
        x, state = step(server, x, deltas, weights, state, lr, clients, steps=steps)
        mean = torch.stack([control["client_control"] for control in controls]).mean(dim=0)
        torch.testing.assert_close(state["control"], mean)


def test_a_scaffold_client_s_control_variate_is_its_mean_gradient() -> None:
    rule, options, lr, kept = ScaffoldRule(), LocalOptions(), 0.1, ControlVariate()
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    vectors = {"control": torch.tensor([0.3, 0.1], dtype=torch.float64), **kept.first(x, 2)}
    memory, y, gradients = rule.begin(x, vectors, options, 3), x.clone(), []
    for _ in range(3):
        gradients.append(y**3)
        y = rule.update(y, y**3, memory, options, lr)
    torch.testing.assert_close(kept.after(vectors, x, y, lr, 3)["client_control"], torch.stack(gradients).mean(dim=0))


def test_feddyn_s_server_agrees_with_the_paper_s_h_and_the_authors_mean_of_drifts() -> None:
    clients, alpha, server, kept = 5, 0.2, FedDynServer(alpha=0.2), Drift()
    x = torch.zeros(3, dtype=torch.float64)
    state, h = server.begin(x), torch.zeros(3, dtype=torch.float64)
    drifts = [kept.first(x, 3) for _ in range(clients)]
    draws = torch.Generator().manual_seed(1)
    for cohort in cohorts(6, clients, 2):
        finals = x + torch.randn(2, 3, generator=draws, dtype=torch.float64)
        for client, final in zip(cohort, finals, strict=True):
            drifts[client] = kept.after({**state, **drifts[client]}, x, final, 0.1, 4)
        h = h - alpha / clients * (finals - x).sum(dim=0)
        paper = finals.mean(dim=0) - h / alpha
        authors = finals.mean(dim=0) + torch.stack([drift["drift"] for drift in drifts]).mean(dim=0)
        weights = torch.full((2,), 0.5, dtype=torch.float64)
        x, state = step(server, x, finals - x, weights, state, clients=clients)
        torch.testing.assert_close(x, paper)
        torch.testing.assert_close(x, authors)


def test_fedgkd_s_teacher_is_the_mean_of_the_last_models_and_silent_at_first() -> None:
    server, one = FedGkdServer(buffer=3), torch.ones(1)
    x = torch.tensor([1.0])
    state, trained = server.begin(x), []
    assert float(state["teaching"]) == 0
    for delta in (1.0, 3.0, -2.0, 4.0):
        x, state = step(server, x, torch.tensor([[delta]]), one, state)
        # The first model, 1, teaches nobody: 2; 2 and 5; 2, 5 and 3; 5, 3 and 7.
        trained.append((trained[-1] if trained else 1.0) + delta)
        assert float(state["teacher"]) == pytest.approx(sum(trained[-3:]) / len(trained[-3:]))
        assert float(state["teaching"]) == 1
    assert sorted(state) == ["model 1", "model 2", "model 3", "teacher", "teaching"]


def test_stale_updates_enter_with_their_weight_and_their_own_rate():
    """FedADC: m = (β_g - β_l) m + Σ w s Δ/η_k. FedDyn: θ + Σ w s δ + h', h' = h + Σ δ/N, whatever the weights."""
    deltas = torch.tensor([[1.0, -2.0], [3.0, 5.0]], dtype=torch.float64)
    each = [Arrival(0, 0.1, 4, 0.5), Arrival(1, 0.2, 4, 0.5, age=2, factor=0.25)]
    arrivals, theta = Arrivals(each, deltas, deltas), torch.tensor([1.0, 1.0], dtype=torch.float64)
    before = torch.tensor([2.0, -4.0], dtype=torch.float64)
    momentum = 0.1 * before - 0.5 * deltas[0] / 0.1 - 0.5 * 0.25 * deltas[1] / 0.2
    facts = RoundFacts(lr=0.05, clients=10)
    model, state = FedAdcServer(beta_g=0.9, beta_l=0.8).update(theta, arrivals, {"momentum": before}, facts)
    torch.testing.assert_close(state["momentum"], momentum)
    torch.testing.assert_close(model, theta - 0.05 * momentum)
    model, state = FedDynServer().update(theta, arrivals, {"shift": before}, facts)
    torch.testing.assert_close(state["shift"], before + deltas.sum(0) / 10)
    torch.testing.assert_close(model, theta + 0.5 * deltas[0] + 0.125 * deltas[1] + state["shift"])

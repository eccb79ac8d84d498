"""FedDyn's penalty, and losses with random inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgefl.errors import UserError
from edgefl.methods.objectives.base import Batch, Context
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.objectives.feddyn import FedDyn
from edgefl.methods.objectives.fedmlb import FedMLB
from edgefl.methods.objectives.gradaug import GradAug
from edgefl.methods.objectives.mixup import Mixup
from edgefl.methods.objectives.stochdepth import StochasticDepth
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector


@pytest.mark.parametrize("base", [CrossEntropy(), FedMLB()])
def test_feddyn_adds_its_linear_and_quadratic_terms_to_any_loss(bench, base) -> None:
    """With λ = -α h, as the paper writes it."""
    dual, difference = -0.3 * bench.vectors["drift"], bench.local - bench.received
    wanted = float(bench.loss(base).total) - float(dual @ bench.local) + 0.15 * float(difference @ difference)
    assert float(bench.loss(FedDyn(base=base, alpha=0.3)).total) == pytest.approx(wanted)
    slope = bench.gradient(FedDyn(base=base, alpha=0.3)) - bench.gradient(base)
    torch.testing.assert_close(slope, -dual + 0.3 * difference)


def test_feddyn_s_two_forms_have_one_gradient(bench) -> None:
    """The authors' code: weight decay α and a linear term α⟨θ, -θ_t + h⟩."""
    alpha, leaf = 0.3, bench.local.clone().requires_grad_()
    linear = alpha * (leaf @ (bench.vectors["drift"] - bench.received))
    wanted = torch.autograd.grad(bench.loss(CrossEntropy(), leaf).total + linear, leaf)[0] + alpha * bench.local
    torch.testing.assert_close(bench.gradient(FedDyn(alpha=alpha)), wanted)


@pytest.mark.parametrize("objective", [FedDyn(), FedDyn(base=FedMLB()), Mixup(mixing=2.0)])
def test_gradients_agree_with_differences(assert_gradient, objective) -> None:
    assert_gradient(objective)


def test_mixup_is_the_formula_for_its_draw(bench) -> None:
    objective = Mixup(mixing=1.0)
    drawn = objective.draw(np.random.default_rng(3), 5)
    share, partner = float(drawn["share"]), drawn["partner"].tolist()
    x, y = bench.batch
    mixed = torch.stack([share * x[i] + (1 - share) * x[partner[i]] for i in range(5)])
    with torch.no_grad():
        log_p = F.log_softmax(bench.model.apply_blocks(bench.weights(bench.local), mixed), dim=1)
    wanted = -sum(share * log_p[i, y[i]] + (1 - share) * log_p[i, y[partner[i]]] for i in range(5)) / 5
    assert float(bench.loss(objective).total) == pytest.approx(float(wanted), rel=1e-6)
    assert sorted(partner) == list(range(5))


def test_mixing_shares_are_beta_distributed() -> None:
    draws = np.random.default_rng(0)
    shares = np.array([float(Mixup(mixing=0.5).draw(draws, 2)["share"]) for _ in range(4000)])
    assert shares.mean() == pytest.approx(0.5, abs=0.03)
    assert shares.var() == pytest.approx(0.125, abs=0.01)  # 1 / (4 (2a + 1))


def resnet():
    model = build_model(MODELS["resnet18"](groups=2), (3, 8, 8), 4)
    flat = initial_vector(model, 3).double()
    batch = Batch(
        torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
        torch.tensor([0, 1, 2]),
    )
    return model, model.layout.weights(flat), batch


def test_stochastic_depth_leaves_out_the_blocks_that_were_drawn() -> None:
    model, weights, batch = resnet()
    objective = StochasticDepth(survival=0.5)
    probabilities = torch.tensor(objective.probabilities(8))
    for seed in range(3):
        drawn = objective.draw(np.random.default_rng(seed), 3)
        kept = [bool(u < p) for u, p in zip(drawn["uniform"][:8], probabilities, strict=True)]
        loss = objective.loss(weights, batch, Context(model, {}, {}, {}, model.depth, drawn))
        with using(keep=torch.tensor(kept, dtype=torch.float64)):
            wanted = F.cross_entropy(model.apply_blocks(weights, batch.inputs), batch.labels)
        torch.testing.assert_close(loss.total, wanted)
        assert kept[0]


def test_blocks_are_kept_as_often_as_said() -> None:
    objective, draws = StochasticDepth(survival=0.6), np.random.default_rng(0)
    uniform = torch.stack([objective.draw(draws, 1)["uniform"][:18] for _ in range(4000)])
    rates = (uniform < torch.tensor(objective.probabilities(18))).float().mean(dim=0)
    wanted = torch.tensor([1 - block / 17 * 0.4 for block in range(18)])
    assert float((rates - wanted).abs().max()) < 0.04


def test_the_evaluation_of_a_residual_is_its_expectation() -> None:
    """Before the activation, over both draws of the last block, whose output nothing non-linear follows but ReLU."""
    model, weights, batch = resnet()
    last = [module for module in model.modules() if type(module).__name__ == "Residual"][-1]
    last.activation = torch.nn.Identity()
    survival = 0.7

    def tap(**mode) -> torch.Tensor:
        with torch.no_grad(), using(track=False, **mode):
            return model.apply_blocks(weights, batch.inputs, stop=model.depth - 1)

    kept, dropped = torch.ones(8, dtype=torch.float64), torch.ones(8, dtype=torch.float64)
    dropped[7] = 0
    probabilities = (*[1.0] * 7, survival)
    expected = survival * tap(keep=kept) + (1 - survival) * tap(keep=dropped)
    torch.testing.assert_close(tap(training=False, keep_probability=probabilities), expected)
    mode = StochasticDepth(survival=survival).evaluation_mode(model)
    assert mode["keep_probability"][-1] == pytest.approx(survival)


def test_gradaug_is_the_formula_for_its_draw() -> None:
    model, weights, batch = resnet()
    objective = GradAug(subnets=3, min_width=0.5, sizes=(1.0, 0.5))
    drawn = objective.draw(np.random.default_rng(4), 3)
    loss = objective.loss(weights, batch, Context(model, {}, {}, {}, model.depth, drawn))
    full = model.apply_blocks(weights, batch.inputs)
    wanted = F.cross_entropy(full, batch.labels)
    for width, size in zip(drawn["width"].tolist(), drawn["size"].tolist(), strict=True):
        side = int(8 * size)
        small = F.interpolate(batch.inputs, (side, side), mode="bilinear", align_corners=True)
        with using(width=width, track=False):
            narrow = model.apply_blocks(weights, small)
        p = full.softmax(dim=1)
        wanted = wanted + 1.5 * (p * (p.log() - narrow.log_softmax(dim=1))).sum() / 3
    torch.testing.assert_close(loss.total, wanted)


def test_gradaug_draws_widths_from_the_least_up_largest_first() -> None:
    widths = GradAug(subnets=4, min_width=0.6).draw(np.random.default_rng(0), 1)["width"].tolist()
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 0.6
    assert all(0.6 <= width <= 1 for width in widths)


def test_what_a_loss_cannot_train_is_refused() -> None:
    cnn = build_model(MODELS["cnn"](width=8), (1, 8, 8), 3)
    with pytest.raises(UserError, match="residual"):
        StochasticDepth().adapt(cnn)
    with pytest.raises(UserError, match="one size only"):
        GradAug().adapt(cnn)
    assert GradAug(sizes=(1.0,)).adapt(cnn) is cnn


@pytest.mark.parametrize("objective", [Mixup(), GradAug(sizes=(1.0,))])
@pytest.mark.parametrize(("name", "shape"), [("mlp", (6,)), ("char_transformer", (5,))])
def test_what_changes_images_refuses_other_inputs_by_their_shape(objective, name, shape) -> None:
    model = build_model(MODELS[name](), shape, 4)
    with pytest.raises(UserError) as refusal:
        objective.adapt(model)
    assert str(refusal.value) == (
        f"{type(objective).__name__} changes images [channels, height, width], and this model takes inputs of the "
        f"shape {list(shape)}"
    )

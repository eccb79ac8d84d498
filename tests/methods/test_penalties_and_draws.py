"""Losses with random inputs, and FedDyn's α by a client's size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.feddyn import FedDyn
from edgefl.methods.fedmlb import FedMLB
from edgefl.methods.gradaug import GradAug
from edgefl.methods.mixup import Mixup
from edgefl.methods.parts.objective import Batch
from edgefl.methods.stochdepth import StochasticDepth
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.training.job_task import ClientData


def test_mixing_shares_are_beta_distributed() -> None:
    draws = np.random.default_rng(0)
    shares = np.array([float(Mixup(mixing=0.5).draw(draws, 2)["share"]) for _ in range(2000)])
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


def test_blocks_are_kept_as_often_as_said() -> None:
    objective, draws = StochasticDepth(survival=0.6), np.random.default_rng(0)
    uniform = torch.stack([objective.draw(draws, 1)["uniform"][:18] for _ in range(3000)])
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
def test_what_changes_images_refuses_other_inputs_by_their_shape(objective) -> None:
    with pytest.raises(UserError, match=r"needs images .*, and this model takes inputs of the shape \[6\]"):
        objective.adapt(build_model(MODELS["mlp"](), (6,), 4))


def test_a_level_that_the_model_lacks_is_refused(bench) -> None:
    with pytest.raises(UserError, match="level 4 is none"):
        FedMLB(levels=(1, 4)).adapt(bench.model)


def test_a_client_of_half_the_mean_size_has_twice_the_alpha(bench):
    bench.client = {**bench.client, "relative_size": torch.tensor(0.5)}
    scaled = bench.gradient(FedDyn(alpha=0.15, scale_alpha=True))
    torch.testing.assert_close(scaled, bench.gradient(FedDyn(alpha=0.3)))


def test_the_size_of_a_client_is_relative_to_the_mean_one():
    partition = {"kind": "dirichlet", "alpha": 0.3, "balanced": False}
    section = Synthetic(shape=(1, 8, 8), classes=4, train=120, test_images=20, clients=4, partition=partition)
    unbalanced = load_federated(section, seed=0)
    sizes = [float(ClientData(unbalanced).facts(client)["relative_size"]) for client in range(4)]
    assert sizes == pytest.approx([size / 30 for size in unbalanced.sizes])

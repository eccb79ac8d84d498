"""FedMLB and FedBR against their formulas, written out in plain operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.objectives.fedbr import FedBR
from edgefl.methods.objectives.fedmlb import FedMLB


def path(bench, flats: list[Tensor]) -> Tensor:
    """Logits of the path whose block i has the weights ``flats[i]``; every path from the image on, nothing shared."""
    value = bench.batch.inputs
    for index, flat in enumerate(flats):
        value = bench.model.apply_blocks(bench.weights(flat), value, index, index + 1)
    return value


def log_probabilities(logits: Tensor, temperature: float) -> Tensor:
    scaled = logits / temperature
    return scaled - scaled.exp().sum(dim=1, keepdim=True).log()


def by_formula(
    bench, local: Tensor, paths: list[list[Tensor]], *, lambdas: tuple[float, float], temperature: float, divisor: int
) -> Tensor:
    labels = bench.batch.labels
    picked = torch.arange(len(labels)), labels
    main = path(bench, [local] * 4)
    total = -log_probabilities(main, 1)[picked].mean()
    log_q = log_probabilities(main, temperature)
    for flats in paths:
        hybrid = path(bench, flats)
        log_p = log_probabilities(hybrid, temperature)
        total = total + lambdas[0] / divisor * -log_probabilities(hybrid, 1)[picked].mean()
        total = total + lambdas[1] / divisor * (log_p.exp() * (log_p - log_q)).sum() / len(labels)
    return total


def check(bench, objective, paths_of, divisor: int, alpha: int | None = None) -> None:
    leaf = bench.local.clone().requires_grad_()
    wanted = by_formula(
        bench,
        leaf,
        paths_of(leaf),
        lambdas=(objective.lambda_1, objective.lambda_2),
        temperature=objective.temperature,
        divisor=divisor,
    )
    loss = bench.loss(objective, alpha=alpha)
    assert float(loss.total) == pytest.approx(float(wanted.detach()), rel=1e-12)
    assert float(loss.cross_entropy) == pytest.approx(float(bench.loss(CrossEntropy()).total), rel=1e-12)
    torch.testing.assert_close(bench.gradient(objective, alpha), torch.autograd.grad(wanted, leaf)[0])


OPTIONS = [(1.0, 1.0, 1.0), (0.3, 2.0, 3.0)]


@pytest.mark.parametrize(("lambda_1", "lambda_2", "temperature"), OPTIONS)
def test_fedmlb_is_its_formula_over_all_levels(bench, lambda_1, lambda_2, temperature) -> None:
    objective = FedMLB(lambda_1=lambda_1, lambda_2=lambda_2, temperature=temperature)
    check(bench, objective, lambda x: [[x] * m + [bench.received] * (4 - m) for m in (1, 2, 3)], divisor=3)


def test_fedmlb_on_some_levels_divides_by_all_of_them_or_by_those_used(bench) -> None:
    def paths(x):
        return [[x] * m + [bench.received] * (4 - m) for m in (1, 3)]

    check(bench, FedMLB(levels=(1, 3)), paths, divisor=3)
    check(bench, FedMLB(levels=(1, 3), divisor="levels"), paths, divisor=2)


def test_fedmlb_the_other_way_round_has_received_blocks_first(bench) -> None:
    objective = FedMLB(direction="global_to_local")
    check(bench, objective, lambda x: [[bench.received] * m + [x] * (4 - m) for m in (1, 2, 3)], divisor=3)


@pytest.mark.parametrize("alpha", [1, 2, 3])
@pytest.mark.parametrize(("lambda_1", "lambda_2", "temperature"), OPTIONS)
def test_fedbr_is_its_formula_over_the_received_blocks(bench, alpha, lambda_1, lambda_2, temperature) -> None:
    objective = FedBR(lambda_1=lambda_1, lambda_2=lambda_2, temperature=temperature)
    check(
        bench,
        objective,
        lambda x: [[x] * (4 - j) + [bench.received] * j for j in range(1, alpha + 1)],
        divisor=alpha,
        alpha=alpha,
    )


@pytest.mark.parametrize("alpha", [3, 4])
def test_fedbr_with_all_blocks_is_fedmlb_s_formula(bench, alpha) -> None:
    check(bench, FedBR(), lambda x: [[x] * m + [bench.received] * (4 - m) for m in (1, 2, 3)], divisor=3, alpha=alpha)


@pytest.mark.parametrize("alpha", [1, 2])
def test_fedbr_reads_no_block_that_was_not_received(bench, alpha) -> None:
    before = bench.loss(FedBR(), alpha=alpha).total
    layout = bench.model.layout
    bench.received[: sum(layout.block_sizes()[: 4 - alpha])] = float("nan")
    assert float(bench.loss(FedBR(), alpha=alpha).total) == float(before)


@pytest.mark.parametrize("objective", [FedMLB(), FedMLB(direction="global_to_local"), FedBR()])
def test_gradients_agree_with_differences(assert_gradient, objective) -> None:
    assert_gradient(objective)
    assert_gradient(objective, 2)


def test_a_level_that_the_model_lacks_is_refused(bench) -> None:
    with pytest.raises(UserError, match="level 4 is none"):
        FedMLB(levels=(1, 4)).adapt(bench.model)


def test_frozen_blocks_get_no_gradient_and_pass_gradient_on(bench) -> None:
    """With the local classifier out of the main loss's reach, only paths through frozen blocks move the front."""
    received = bench.received.clone().requires_grad_()
    local = bench.local.clone().requires_grad_()
    context = bench.context(FedMLB())
    assert all(not tensor.requires_grad for block in context.frozen["received"] for tensor in block.values())
    hybrid_only = bench.loss(FedMLB(lambda_2=0), local).total - bench.loss(CrossEntropy(), local).total
    (gradient,) = torch.autograd.grad(hybrid_only, local)
    sizes = bench.model.layout.block_sizes()
    assert gradient[: sizes[0]].abs().max() > 0
    assert gradient[-sizes[3] :].abs().max() < 1e-12
    assert received.grad is None

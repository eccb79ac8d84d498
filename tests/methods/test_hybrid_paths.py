"""FedMLB and FedBR against their formulas, written out in plain operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fedbr import FedBR
from edgefl.methods.fedmlb import FedMLB


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


OPTIONS = {"lambda_1": 0.3, "lambda_2": 2.0, "temperature": 3.0}


def test_fedmlb_is_its_formula_over_all_levels(bench) -> None:
    objective = FedMLB(**OPTIONS)
    check(bench, objective, lambda x: [[x] * m + [bench.received] * (4 - m) for m in (1, 2, 3)], divisor=3)


def test_fedmlb_on_some_levels_divides_by_all_of_them_or_by_those_used(bench) -> None:
    def paths(x):
        return [[x] * m + [bench.received] * (4 - m) for m in (1, 3)]

    check(bench, FedMLB(levels=(1, 3)), paths, divisor=3)
    check(bench, FedMLB(levels=(1, 3), divisor="levels"), paths, divisor=2)


def test_fedmlb_the_other_way_round_has_received_blocks_first(bench) -> None:
    objective = FedMLB(direction="global_to_local")
    check(bench, objective, lambda x: [[bench.received] * m + [x] * (4 - m) for m in (1, 2, 3)], divisor=3)


@pytest.mark.parametrize("alpha", [1, 3])
def test_fedbr_is_its_formula_over_the_received_blocks(bench, alpha) -> None:
    objective = FedBR(**OPTIONS)
    check(
        bench,
        objective,
        lambda x: [[x] * (4 - j) + [bench.received] * j for j in range(1, alpha + 1)],
        divisor=alpha,
        alpha=alpha,
    )


def test_fedbr_with_all_blocks_is_fedmlb_s_formula(bench) -> None:
    check(bench, FedBR(), lambda x: [[x] * m + [bench.received] * (4 - m) for m in (1, 2, 3)], divisor=3, alpha=4)


def test_fedbr_reads_no_block_that_was_not_received(bench) -> None:
    before = bench.loss(FedBR(), alpha=2).total
    layout = bench.model.layout
    bench.received[: sum(layout.block_sizes()[:2])] = float("nan")
    assert float(bench.loss(FedBR(), alpha=2).total) == float(before)


def test_a_level_that_the_model_lacks_is_refused(bench) -> None:
    with pytest.raises(UserError, match="level 4 is none"):
        FedMLB(levels=(1, 4)).adapt(bench.model)

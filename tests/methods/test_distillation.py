"""Cross-entropy, FedProx and losses with a teacher, against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from edgefl.methods.fedadc_plus import SelfConfidence, self_confident_target
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fedgkd import FedGKD
from edgefl.methods.fedprox import FedProx
from edgefl.methods.fedrs import FedRS
from edgefl.methods.fitnet import FitNet
from edgefl.methods.kd import KnowledgeDistillation
from edgefl.methods.ntd import NotTrueDistillation


@pytest.fixture(autouse=True)
def teaching(bench) -> None:
    bench.vectors = {**bench.vectors, "teaching": torch.ones(1, dtype=torch.float64)}


def softmax_rows(logits: torch.Tensor, temperature: float = 1.0) -> list[list[float]]:
    rows = []
    for row in logits.tolist():
        powers = [math.exp(z / temperature) for z in row]
        rows.append([p / sum(powers) for p in powers])
    return rows


def rows_of(bench, flat: torch.Tensor, temperature: float = 1.0) -> list[list[float]]:
    with torch.no_grad():
        return softmax_rows(bench.model.apply_blocks(bench.weights(flat), bench.batch.inputs), temperature)


def mean_kl(targets: list[list[float]], predictions: list[list[float]]) -> float:
    terms = [
        sum(p * math.log(p / q) for p, q in zip(target, prediction, strict=True) if p > 0)
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    return sum(terms) / len(terms)


def plain(bench) -> float:
    return float(bench.loss(CrossEntropy()).total)


def test_cross_entropy_is_the_mean_of_minus_the_log_of_the_label_s_probability(bench) -> None:
    rows = rows_of(bench, bench.local)
    wanted = -sum(math.log(row[label]) for row, label in zip(rows, bench.batch.labels.tolist(), strict=True)) / 5
    assert plain(bench) == pytest.approx(wanted, rel=1e-12)


def test_fedprox_adds_half_mu_times_the_squared_distance(bench) -> None:
    loss, difference = bench.loss(FedProx(mu=3.0)), bench.local - bench.received
    assert float(loss.total) == pytest.approx(plain(bench) + 1.5 * float(difference @ difference))
    assert float(loss.cross_entropy) == plain(bench)


def test_kd_and_fedgkd_are_the_formula(bench) -> None:
    teacher, student = rows_of(bench, bench.received, 2.0), rows_of(bench, bench.local, 2.0)
    kd = float(bench.loss(KnowledgeDistillation(gamma=0.4, temperature=2.0)).total)
    assert kd == pytest.approx(0.6 * plain(bench) + 0.4 * mean_kl(teacher, student))
    mean = rows_of(bench, bench.vectors["teacher"], 2.0)
    gkd = float(bench.loss(FedGKD(gamma=0.1, temperature=2.0)).total)
    assert gkd == pytest.approx(plain(bench) + 0.1 * 4 * mean_kl(mean, student))


def test_fedgkd_s_teacher_is_silent_in_the_first_round(bench) -> None:
    bench.vectors = {**bench.vectors, "teaching": torch.zeros(1, dtype=torch.float64)}
    assert torch.equal(bench.gradient(FedGKD()), bench.gradient(CrossEntropy()))


def not_true_rows(rows: list[list[float]], labels: list[int]) -> list[list[float]]:
    left = [[p for i, p in enumerate(row) if i != label] for row, label in zip(rows, labels, strict=True)]
    return [[p / sum(row) for p in row] for row in left]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_ntd_in_both_forms_is_the_formula(bench, temperature) -> None:
    labels = bench.batch.labels.tolist()
    distillation = mean_kl(
        not_true_rows(rows_of(bench, bench.received, temperature), labels),
        not_true_rows(rows_of(bench, bench.local, temperature), labels),
    )
    convex = bench.loss(NotTrueDistillation(beta=0.3, temperature=temperature)).total
    additive = bench.loss(NotTrueDistillation(form="additive", beta=0.8, temperature=temperature)).total
    assert float(convex) == pytest.approx(0.7 * plain(bench) + 0.3 * distillation)
    assert float(additive) == pytest.approx(plain(bench) + 0.8 * temperature**2 * distillation)


def test_fitnet_averages_the_squared_gaps_of_all_taps_but_the_logits(bench) -> None:
    with torch.no_grad():
        ours = bench.model.taps(bench.weights(bench.local), bench.batch.inputs)
        theirs = bench.model.taps(bench.weights(bench.received), bench.batch.inputs)
    gaps = [float(((a - b) ** 2).mean()) for a, b in zip(ours[:-1], theirs[:-1], strict=True)]
    assert float(bench.loss(FitNet(gamma=0.2)).total) == pytest.approx(plain(bench) + 0.2 * sum(gaps) / 3)


def test_fedrs_shrinks_the_logits_of_classes_the_client_lacks(bench) -> None:
    """The bench's client holds no image of class 2."""
    with torch.no_grad():
        logits = bench.model.apply_blocks(bench.weights(bench.local), bench.batch.inputs)
    rows = softmax_rows(logits * torch.tensor([1, 1, 0.5]))
    wanted = -sum(math.log(row[label]) for row, label in zip(rows, bench.batch.labels.tolist(), strict=True)) / 5
    assert float(bench.loss(FedRS(absent_scale=0.5)).total) == pytest.approx(wanted)
    assert float(bench.loss(FedRS(absent_scale=1.0)).total) == pytest.approx(plain(bench))


def test_fedrs_as_its_authors_code_has_it_scales_each_class_by_its_share(bench) -> None:
    """The bench's client holds 6, 3 and 0 images of the classes: factors 1, ¾ and ½."""
    assert bench.client["label_counts"].tolist() == [6, 3, 0]
    with torch.no_grad():
        logits = bench.model.apply_blocks(bench.weights(bench.local), bench.batch.inputs)
    rows = softmax_rows(logits * torch.tensor([1, 0.75, 0.5]))
    wanted = -sum(math.log(row[label]) for row, label in zip(rows, bench.batch.labels.tolist(), strict=True)) / 5
    assert float(bench.loss(FedRS(absent_scale=0.5, form="share")).total) == pytest.approx(wanted)
    assert float(bench.loss(FedRS(absent_scale=1.0, form="share")).total) == pytest.approx(plain(bench))


def test_the_self_confident_target_by_hand() -> None:
    """Counts (6, 3, 0): ρ = (1, ½, 0), so the label takes the teacher's mass on 0 and half of that on 1."""
    teacher = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]], dtype=torch.float64)
    target = self_confident_target(teacher, torch.tensor([0, 1]), torch.tensor([6.0, 3.0, 0.0]))
    wanted = torch.tensor([[1 - 0.25 - 0.3, 0.25, 0.3], [0.0, 0.7, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(target, wanted)
    assert bool((target.gather(1, torch.tensor([[0], [1]])) >= teacher.gather(1, torch.tensor([[0], [1]]))).all())


@pytest.mark.parametrize("teacher", ["received", "local"])
def test_fedadc_plus_is_the_formula(bench, teacher) -> None:
    temperature, confidence = 2.0, [1.0, 0.5, 0.0]
    source = bench.received if teacher == "received" else bench.local
    targets = []
    for row, label in zip(rows_of(bench, source, temperature), bench.batch.labels.tolist(), strict=True):
        target = [(1 - rho) * p for rho, p in zip(confidence, row, strict=True)]
        target[label] = 1 - sum(p for i, p in enumerate(target) if i != label)
        targets.append(target)
    divergence = mean_kl(targets, rows_of(bench, bench.local, temperature))
    loss = bench.loss(SelfConfidence(temperature=temperature, teacher=teacher)).total
    assert float(loss) == pytest.approx(0.65 * plain(bench) + 0.35 * 4 * divergence)


@pytest.mark.parametrize("teacher", ["received", "local"])
def test_fedadc_plus_on_iid_data_is_cross_entropy(bench, teacher) -> None:
    bench.client = {"label_counts": torch.tensor([4.0, 4.0, 4.0])}
    objective = SelfConfidence(lam=0.35, teacher=teacher)
    assert float(bench.loss(objective).total) == pytest.approx(plain(bench), rel=1e-12)
    torch.testing.assert_close(bench.gradient(objective), bench.gradient(CrossEntropy()))

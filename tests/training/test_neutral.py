"""What the learner keeps of losses and models, and the learner that trains nothing."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training.evaluation import epoch_losses
from edgefl.training.job import Feedback, JobId, NeutralLearner, TrainingJob
from edgefl.training.job_task import JobResult
from edgefl.training.kept_states import EnsembleSpec, KeptModels


def test_versions_count_up_and_every_number_is_neutral():
    learner = NeutralLearner()
    for round in range(3):
        job = TrainingJob(JobId("fedbr", 0, 5, round), round, round, alpha=2, steps=4)
        learner.submit(job)
        assert learner.aggregate(round, [job.id], round) == round + 1
        assert learner.feedback(job.id) == Feedback(loss=0.0, first_loss=0.0, distance=1.0, drift=0.0)
        evaluation = learner.evaluate(round + 1)
        assert all(math.isnan(each) for each in (evaluation.metric, evaluation.loss, evaluation.ensemble))


def test_the_world_can_talk_to_training_without_importing_torch():
    modules = "edgefl.training.job, edgefl.training.job, edgefl.training.faults"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def kept(decay):
    return KeptModels(EnsembleSpec(decay=decay))


models = st.lists(st.floats(-10, 10), min_size=1, max_size=20)


@given(models=models, decay=st.floats(0, 0.99))
def test_it_is_the_weighted_mean_of_all_models(models, decay):
    ensemble = kept(decay)
    for number in models:
        ensemble.aggregated(torch.tensor([number], dtype=torch.float64), {})
    weights = [decay ** (len(models) - 1 - place) for place in range(len(models))]
    expected = sum(w * m for w, m in zip(weights, models, strict=True)) / sum(weights)
    assert float(ensemble.average) == pytest.approx(expected, abs=1e-9)


def test_what_was_put_on_disk_goes_on_as_if_nothing_had_been():
    whole, first, second = kept(0.9), kept(0.9), kept(0.9)
    values = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    for place, model in enumerate(values):
        whole.aggregated(model, {})
        if place == 3:
            second.restore(first.packed())
        (first if place < 3 else second).aggregated(model, {})
    assert torch.equal(whole.average, second.average)


def result(losses, sizes):
    return JobResult(torch.zeros(1), torch.tensor(losses), tuple(sizes))


@pytest.mark.parametrize(
    ("losses", "sizes", "options", "images", "expected"),
    [
        # Three steps an epoch, of which the last has one image.
        ([1, 2, 6, 0.5, 1, 4], [2, 2, 1] * 2, {"epochs": 2, "batch": 2}, 5, ((2 + 4 + 6) / 5, (1 + 2 + 4) / 5)),
        ([1, 2, 3, 4, 5], [4] * 5, {"steps": 5, "batch": 4}, 8, (1.5, 4.5)),
        ([3, 1], [4, 4], {"steps": 2, "batch": 4}, 80, (2, 2)),
        ([1, 3], [4, 4], {"epochs": 2, "batch": 4, "drop_last": True}, 7, (1, 3)),
    ],
    ids=["by images", "counted steps", "shorter than an epoch", "whole batches"],
)
def test_losses_are_those_of_the_first_and_the_last_epoch(losses, sizes, options, images, expected):
    found = epoch_losses(result([float(each) for each in losses], sizes), LocalOptions(**options), images)
    assert found == pytest.approx(expected)


def test_a_loss_that_is_not_finite_comes_through():
    losses = epoch_losses(result([math.inf, -math.inf, 1.0], [1, 1, 1]), LocalOptions(batch=1, epochs=3), 1)
    assert losses == (math.inf, 1.0)
    assert math.isnan(epoch_losses(result([math.inf, -math.inf], [1, 1]), LocalOptions(batch=1), 2)[1])

from dataclasses import replace

import pytest
import torch

from edgefl.cost import measure
from edgefl.errors import WrongAnswer
from edgefl.methods.build import build_method
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd, local_step
from edgefl.methods.parts.objective import Batch, Context, Loss
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.training.core import TrainingCore
from edgefl.training.faults import TrainingFault
from edgefl.training.job import JobId, TrainingJob

from ..training.conftest import TinyData, tiny_model


@pytest.mark.parametrize("accumulated", [{}, {"batch": 3, "accumulate": 3}], ids=str)
def test_a_step_equals_pytorchs_own_training_loop(accumulated):
    """Also one that adds up the gradients of minibatches of 3, 3 and 2 samples."""
    model = build_model(MODELS["resnet18"](stem="imagenet", norm="batch"), (3, 16, 16), 5).double()
    layout = model.layout
    vector = initial_vector(model, 0).double()
    parameters, buffers = layout.split(vector)
    batch = Batch(
        torch.randn(8, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 5
    )
    options = LocalOptions(momentum=0.9, weight_decay=1e-3, clip_norm=1.0, **accumulated)
    memory = Sgd().begin(parameters, {}, options, 2)
    context = Context(model, {}, {}, {}, model.depth)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for _ in range(2):
        parameters, loss = local_step(CrossEntropy(), Sgd(), parameters, buffers, batch, context, memory, options, 0.1)
        optimizer.zero_grad()
        with using(training=True):
            parts = zip(*(each.split(accumulated.get("batch", 8)) for each in batch), strict=True)
            expected = 0.0
            for inputs, labels in parts:
                mean = torch.nn.functional.cross_entropy(model(inputs), labels) * len(labels) / 8
                mean.backward()
                expected += mean.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert not loss.total.requires_grad
        assert torch.allclose(loss.total, expected)
    trained = layout.flatten(
        [dict([*block.named_parameters(), *block.named_buffers()]) for block in model.blocks.values()]
    )
    expected_parameters, expected_buffers = layout.split(trained)
    assert torch.allclose(parameters.float(), expected_parameters, atol=1e-6)
    assert torch.allclose(buffers.float(), expected_buffers, atol=1e-6)


class Answering(CrossEntropy):
    """A loss that answers something else."""

    how: str

    def loss(self, local, batch, context):
        return ANSWERS[self.how][0](super().loss(local, batch, context))


ANSWERS = {
    "none": (lambda loss: None, r"its loss returned None; expected Loss\(total, cross_entropy\)"),
    "tuple": (tuple, r"its loss returned \(.*; expected Loss"),
    "a number": (
        lambda loss: loss._replace(total=3.0),
        r"its loss returned Loss of shapes \['3\.0', \[\]\]; expected Loss",
    ),
    "one for each image": (
        lambda loss: Loss(loss.total.expand(4), loss.cross_entropy),
        r"its loss returned Loss of shapes \[\[4\], \[\]\]; expected Loss",
    ),
}


@pytest.mark.parametrize(("how", "engine"), [*((how, "sequential") for how in ANSWERS), ("tuple", "batched")])
def test_what_a_loss_returns_is_checked_in_the_users_words(how, engine):
    method = replace(build_method("fedavg", LocalOptions(epochs=1, batch=4)), objective=Answering(how=how))
    with TrainingCore(TinyData(), tiny_model(), 3, engine=engine) as core:
        learner = core.learner(method)
        jobs = [TrainingJob(JobId("m", 3, client, 0), 0, 0, core.model.depth, 2) for client in (0, 1)]
        for job in jobs:
            learner.submit(job)
        with pytest.raises(
            TrainingFault, match=f"^method 'fedavg', client 0, round 1, local step 1: {ANSWERS[how][1]}"
        ):
            learner.aggregate(0, [job.id for job in jobs], 0)
    with pytest.raises(WrongAnswer, match=ANSWERS[how][1]):
        measure(tiny_model(), method, 1, 4)

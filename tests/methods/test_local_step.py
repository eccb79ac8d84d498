import pytest
import torch

from edgefl.methods.local_step import local_step
from edgefl.methods.objectives.base import Batch, Context
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.rules.base import LocalOptions
from edgefl.methods.rules.sgd import Sgd
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector


@pytest.mark.parametrize("shared", [False, True], ids=["two vectors", "halves of one vector"])
def test_a_step_equals_pytorchs_own_training_loop(shared):
    model = build_model(MODELS["resnet18"](stem="imagenet", norm="batch"), (3, 32, 32), 5).double()
    layout = model.layout
    vector = initial_vector(model, 0).double()
    parameters, buffers = layout.split(vector) if shared else (half.clone() for half in layout.split(vector))
    batch = Batch(torch.randn(8, 3, 32, 32, dtype=torch.float64), torch.arange(8) % 5)
    options = LocalOptions(momentum=0.9, weight_decay=1e-3, clip_norm=1.0)
    memory = Sgd().begin(parameters, {}, options, 2)
    context = Context(model, {}, {}, {}, model.depth)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for _ in range(2):
        parameters, loss = local_step(CrossEntropy(), Sgd(), parameters, buffers, batch, context, memory, options, 0.1)
        optimizer.zero_grad()
        with using(training=True):
            expected = torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels)
        expected.backward()
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


def test_the_phases_of_a_step_are_told_in_order():
    model = build_model(MODELS["cnn"](width=2), (1, 8, 8), 3)
    parameters, buffers = model.layout.split(initial_vector(model, 0))
    phases = []
    local_step(
        *(CrossEntropy(), Sgd(), parameters, buffers, Batch(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))),
        *(Context(model, {}, {}, {}, 4), {}, LocalOptions(), 0.1),
        entering=phases.append,
    )
    assert phases == ["forward", "backward", "update"]

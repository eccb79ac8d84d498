import pytest
import torch
import torchvision
from torch import nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.norm import BatchNorm, GroupNorm
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.models.residual import Residual

CLASSES = 7
SHAPE = (3, 32, 32)
PLAIN, FULL = ("cnn", "shufflenet", "squeezenet"), ("fedadc_cnn", "mobilenet_v2", "resnet18", "resnet56", "vgg9")
IMAGE_MODELS = [*PLAIN, *(pytest.param(name, marks=pytest.mark.full) for name in FULL)]


def built(name, shape=SHAPE, classes=CLASSES, **options):
    return build_model(MODELS[name](**options), shape, classes)


def weights_of(model, seed=0):
    vector = initial_vector(model, seed)
    return model.layout.weights(*model.layout.split(vector))


def images(batch=4, shape=SHAPE, seed=0):
    return torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=IMAGE_MODELS)
def model(request):
    return built(request.param, **({"norm": "batch"} if request.param == "cnn" else {}))


@pytest.mark.parametrize(
    ("name", "options", "classes", "parameters", "blocks"),
    [
        ("resnet18", {}, 100, 11_220_132, 6),  # FedMLB
        ("resnet18", {"stem": "imagenet", "norm": "batch"}, 10, 11_181_642, 6),  # torchvision; FedBR's 42.65 MiB
        ("resnet56", {}, 100, 614_452, 5),  # FedAlign
        ("fedadc_cnn", {}, 10, 2_513_418, 9),
        ("cnn", {}, 10, 3 * 16 * 9 + 16 + 16 * 32 * 9 + 32 + 64 * (32 * 64 + 1) + 10 * 65, 4),
    ],
)
def test_parameters_and_blocks_are_those_of_the_papers(name, options, classes, parameters, blocks):
    model = built(name, classes=classes, **options)
    assert (model.layout.parameter_count, model.depth) == (parameters, blocks)


def test_resnet18_gives_torchvisions_logits_in_training_and_evaluation():
    reference = torchvision.models.resnet18(weights=None, num_classes=CLASSES).double()
    model = built("resnet18", stem="imagenet", norm="batch").double()
    own = [tensor for block in model.blocks.values() for tensor in block.parameters()]
    theirs = list(reference.parameters())
    # torchvision registers the shortcut after the body, as we do, so the order is the same.
    assert [tensor.shape for tensor in own] == [tensor.shape for tensor in theirs]
    with torch.no_grad():
        for mine, yours in zip(own, theirs, strict=True):
            mine.copy_(yours)
        batch = images(2, (3, 64, 64)).double()
        for _ in range(2):
            assert torch.allclose(model(batch), reference(batch))
        reference.eval()
        with using(training=False):
            assert torch.allclose(model(batch), reference(batch))


def test_calls_with_handed_in_weights_equal_plain_module_calls(model):
    own = model.layout.flatten([dict([*b.named_parameters(), *b.named_buffers()]) for b in model.blocks.values()])
    weights = model.layout.weights(*model.layout.split(own.clone()))
    batch = images()
    model.to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = model(batch)
        assert torch.equal(model.apply_blocks(weights, batch), expected)
        taps = model.taps(weights, batch)
    assert torch.equal(taps[-1], expected)
    assert [tap.shape[1:] for tap in taps] == list(model.tap_shapes)
    assert len(model.features(taps[-2]).shape) == 2


def test_stopping_and_going_on_at_any_block_changes_nothing(model):
    weights = weights_of(model)
    batch = images()
    with torch.no_grad(), using(track=False):
        whole = model.apply_blocks(weights, batch)
        for cut in range(1, model.depth):
            tap = model.apply_blocks(weights, batch, stop=cut)
            assert torch.equal(model.apply_blocks(weights, tap, start=cut), whole)


def test_clients_side_by_side_equal_clients_one_by_one(model):
    layout = model.layout
    stack = torch.stack([initial_vector(model, seed) for seed in range(2)])
    parameters, buffers = (half.clone() for half in layout.split(stack))
    alone = buffers.clone()
    batches = torch.stack([images(seed=seed) for seed in range(2)])

    def logits(parameters, buffers, batch):
        return model.apply_blocks(layout.weights(parameters, buffers), batch)

    with torch.no_grad():
        together = torch.func.vmap(logits)(parameters, buffers, batches)
        for client in range(2):
            one = logits(parameters[client], alone[client], batches[client])
            assert torch.allclose(together[client], one, atol=1e-4)
    # Running statistics must have been updated in place, in the stack as well.
    assert torch.allclose(buffers, alone, atol=1e-5)
    if layout.buffer_count:
        assert not torch.equal(buffers, layout.split(stack)[1])


def test_a_resnet_can_start_from_the_fan_out_of_each_convolution():
    tensors, plain = (weights_of(built("resnet56", **options)) for options in ({"init": "fan_out"}, {}))
    for drawn, default in zip(tensors, plain, strict=True):
        for tensor, values in drawn.items():
            if values.ndim == 4 and len(values.flatten()) > 1000:
                outputs, _, height, width = values.shape
                assert values.std() == pytest.approx((2 / (outputs * height * width)) ** 0.5, rel=0.12), tensor
                # A normal distribution, whose fourth moment is 3; a uniform one has 1.8.
                assert (values**4).mean() / (values**2).mean() ** 2 == pytest.approx(3, abs=0.7)
                assert not torch.equal(values, default[tensor])
            elif values.ndim == 1 and "weight" in tensor:
                assert torch.equal(values, default[tensor])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("cnn", (1, 7, 7), "8×8 or more, found 1×7×7"),
        ("fedadc_cnn", (3, 15, 32), "16×16 or more"),
        ("vgg9", (3, 64), "takes images"),
    ],
)
def test_an_image_too_small_is_refused_in_one_sentence(name, shape, message):
    with pytest.raises(UserError, match=message):
        built(name, shape)


def test_a_frozen_copy_leaves_running_statistics_alone():
    model = built("cnn", norm="batch")
    vector = initial_vector(model, 0)
    before = vector.clone()
    weights = model.layout.weights(*model.layout.split(vector))
    with torch.no_grad():
        with using(track=False):
            untracked = model.apply_blocks(weights, images())
        assert torch.equal(vector, before)
        assert torch.equal(model.apply_blocks(weights, images()), untracked)
    assert not torch.equal(vector, before)


def test_a_batch_of_one_number_a_channel_is_normalised_to_the_shift_and_not_tracked():
    norm = BatchNorm(3)
    with torch.no_grad():
        norm.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    # The input less its own mean is a rounding error, which 1/√ε enlarges 316 times.
    assert torch.allclose(norm(torch.randn(1, 3, 1, 1)).flatten(), norm.bias, atol=1e-3)
    assert torch.equal(norm.running_var, torch.ones(3))


def test_group_norm_of_leading_channels_keeps_the_group_size():
    norm = GroupNorm(4, 32)
    inputs = torch.randn(2, 16, 3, 3)
    with torch.no_grad(), using(width=0.5):
        assert torch.allclose(norm(inputs), nn.functional.group_norm(inputs, 2), atol=1e-6)


class TestStochasticDepth:
    """Each residual block's body counts by its 0/1 draw in training, by its probability in evaluation."""

    def block(self):
        return Residual(nn.Linear(4, 4), activation=nn.ReLU())

    def test_a_dropped_body_leaves_the_shortcut(self):
        block, inputs = self.block(), torch.randn(3, 4)
        with using(keep=torch.tensor([0.0])):
            assert torch.equal(block(inputs), inputs.relu())
        with using(keep=torch.tensor([1.0])):
            kept = block(inputs)
        assert torch.equal(kept, (block.body(inputs) + inputs).relu())

    def test_evaluation_scales_the_body_by_its_probability(self):
        block, inputs = self.block(), torch.randn(3, 4)
        with using(training=False, keep_probability=(0.3,)):
            assert torch.allclose(block(inputs), (0.3 * block.body(inputs) + inputs).relu())


def test_a_tensor_that_modules_share_is_one_tensor_of_the_weights():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    blocks = {"body": nn.Sequential(nn.Flatten(), first, nn.Tanh(), second), "head": nn.Linear(4, CLASSES)}
    model = BlockModel(blocks, sample_shape=(1, 2, 2), classes=CLASSES, align_block=1)
    assert model.layout.parameter_count == 16 + 4 + 4 + 4 * CLASSES + CLASSES
    vector = torch.randn(model.layout.size, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights, inputs = model.layout.weights(vector), images(shape=(1, 2, 2))
    own = weights[0]
    hidden = (inputs.flatten(1) @ own["1.weight"].T + own["1.bias"]).tanh() @ own["1.weight"].T + own["3.bias"]
    expected = hidden @ weights[1]["weight"].T + weights[1]["bias"]
    output = model.apply_blocks(weights, inputs)
    torch.testing.assert_close(output, expected)
    gradients = [torch.autograd.grad(each.square().sum(), vector, retain_graph=True)[0] for each in (output, expected)]
    torch.testing.assert_close(*gradients)

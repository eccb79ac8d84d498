import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost import CostModel, DataDependentError, measure
from edgefl.cost.measure import GlobalRandomness, trace
from edgefl.cost.recorder import Recorder
from edgefl.methods.build import build_method
from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd, local_step
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.payload import Payload
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.fake import fake
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.models.slimmable import Linear

FLOAT, INT64 = 4, 8


def method(name="fedavg", **local):
    return build_method(name, LocalOptions(**local))


def with_objective(objective):
    return Method("own", "own", objective, Sgd(), Mean(), Payload(), None, "uniform", LocalOptions())


def meta(*shape):
    return torch.empty(*shape, device="meta")


def products(recorder, phase):
    return sum(record.macs for record in recorder.records if record.phase == phase)


def forward_and_backward(function, *leaves):
    """The recorder of a function and of its gradient by ``leaves``."""
    leaves = [leaf.requires_grad_() for leaf in leaves]
    with Recorder() as recorder:
        output = function(*leaves)
        recorder.entering("backward")
        torch.autograd.grad(output.sum(), leaves)
    return recorder


class TestProducts:
    @pytest.mark.parametrize(("groups", "stride"), [(1, 2), (4, 1), (2, 3)])
    def test_a_convolution_has_its_closed_form(self, groups, stride):
        batch, inputs, outputs, side, kernel = 3, 8, 12, 10, 5
        reached = (side + 2 - kernel) // stride + 1
        macs = batch * outputs * reached**2 * (inputs // groups) * kernel**2
        recorder = forward_and_backward(
            lambda x, w: F.conv2d(x, w, padding=1, stride=stride, groups=groups),
            meta(batch, inputs, side, side),
            meta(outputs, inputs // groups, kernel, kernel),
        )
        assert (products(recorder, "forward"), products(recorder, "backward")) == (macs, 2 * macs)

    def test_the_bias_of_a_convolution_is_one_flop_for_each_output(self):
        with Recorder() as recorder:
            F.conv2d(meta(2, 3, 8, 8), meta(5, 3, 3, 3), meta(5))
        outputs = 2 * 5 * 6 * 6
        assert sum(record.flops for record in recorder.records) == 2 * 27 * outputs + outputs

    def test_a_transposed_convolution_spreads_each_input_over_a_kernel(self):
        batch, inputs, outputs, side, kernel = 2, 6, 4, 5, 3
        macs = batch * inputs * side**2 * outputs * kernel**2
        recorder = forward_and_backward(
            lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1, padding=1),
            meta(batch, inputs, side, side),
            meta(inputs, outputs, kernel, kernel),
        )
        assert (products(recorder, "forward"), products(recorder, "backward")) == (macs, 2 * macs)

    def test_only_the_gradients_that_are_asked_for_cost_anything(self):
        inputs = meta(2, 3, 8, 8)
        recorder = forward_and_backward(lambda w: F.conv2d(inputs, w), meta(5, 3, 3, 3))
        assert products(recorder, "backward") == products(recorder, "forward") == 2 * 5 * 36 * 27

    @pytest.mark.parametrize(
        ("function", "shapes", "macs"),
        [
            (torch.mm, ((3, 4), (4, 5)), 60),
            (torch.bmm, ((2, 3, 4), (2, 4, 5)), 120),
            (torch.matmul, ((2, 7, 3, 4), (4, 5)), 840),
            (torch.mv, ((3, 4), (4,)), 12),
            (lambda x, w: torch.einsum("bij,bkj->bik", x, w), ((2, 3, 4), (2, 5, 4)), 120),
        ],
    )
    def test_matrix_products_have_their_closed_forms(self, function, shapes, macs):
        recorder = forward_and_backward(function, *(meta(*shape) for shape in shapes))
        assert products(recorder, "forward") == macs
        if function is not torch.mv:  # its gradient by the matrix is an outer product, which sums nothing
            assert products(recorder, "backward") == 2 * macs

    def test_layers_are_told_from_other_products(self):
        with Recorder() as recorder:
            F.linear(meta(2, 3), meta(4, 3)) @ meta(4, 4)
        assert [(record.macs, record.layer) for record in recorder.records] == [(24, True), (32, False)]


class TestBytes:
    def touched(self, function):
        with Recorder() as recorder:
            function()
        return [record.bytes for record in recorder.records]

    def test_inputs_are_read_once_and_outputs_written_once(self):
        x, y = meta(10, 10), meta(10, 10)
        assert self.touched(lambda: x + y) == [3 * 100 * FLOAT]
        assert self.touched(lambda: x * x) == [2 * 100 * FLOAT]
        assert self.touched(lambda: x.add_(y)) == [3 * 100 * FLOAT]
        assert self.touched(lambda: x.copy_(y)) == [2 * 100 * FLOAT]

    def test_views_are_free_and_expanded_dimensions_are_read_once(self):
        x, row = meta(10, 10), meta(1, 10)
        # Reshaping a transposed matrix is a copy.
        assert self.touched(lambda: x.T.reshape(100)[3:]) == [2 * 100 * FLOAT]
        assert self.touched(lambda: x.view(100)) == []
        assert self.touched(lambda: x + row.expand(10, 10)) == [(2 * 100 + 10) * FLOAT]

    def test_a_gather_reads_what_it_returns(self):
        table, rows = meta(1000, 8), torch.empty(5, dtype=torch.int64, device="meta")
        assert self.touched(lambda: table[rows]) == [2 * 5 * 8 * FLOAT + 5 * INT64]


def classifier(inputs, classes):
    blocks = {"fc": Classifier(Linear(inputs, classes), pool=False)}
    return BlockModel(blocks, sample_shape=(inputs,), classes=classes, align_block=0)


def test_a_whole_step_of_a_two_layer_perceptron_counts_as_by_hand():
    batch, inputs, hidden, classes = 8, 20, 16, 5
    blocks = {
        "fc1": nn.Sequential(Linear(inputs, hidden), nn.ReLU()),
        "fc2": Classifier(Linear(hidden, classes), pool=False),
    }
    model = BlockModel(blocks, sample_shape=(inputs,), classes=classes, align_block=0)
    parameters = inputs * hidden + hidden + hidden * classes + classes
    first, second = batch * inputs * hidden, batch * hidden * classes
    forward = 2 * first + batch * hidden + batch * hidden  # products, biases, ReLU
    forward += 2 * second + batch * classes
    forward += 5 * batch * classes + 1  # log-softmax, mean of picked logits
    backward = 4 * batch * classes  # log-softmax
    backward += 2 * 2 * second + batch * classes  # by weights and by inputs, and the biases' sum
    backward += batch * hidden + 2 * first + batch * hidden  # ReLU; by weights alone, as data need no gradient
    update = 2 * parameters  # θ - η g
    cost = measure(model, method(), 2, batch)
    assert cost.layer_macs == cost.forward_macs == first + second
    assert cost.training_flops == forward + backward + update
    decayed = measure(model, method(weight_decay=1e-3), 2, batch)
    assert decayed.training_flops == cost.training_flops + 2 * parameters


def test_peak_memory_of_a_layer_with_many_weights_is_three_models():
    batch, inputs, classes = 2, 1000, 10
    parameters = inputs * classes + classes
    cost = measure(classifier(inputs, classes), method(), 1, batch)
    # Parameters, the gradients by weight and bias, and their concatenation; then the data; the loss.
    assert cost.peak_memory_bytes == 3 * parameters * FLOAT + batch * (inputs * FLOAT + INT64) + FLOAT


def test_frozen_blocks_count_as_memory_where_the_step_reads_them():
    model = build_model(MODELS["cnn"](width=4), (1, 8, 8), 10)
    fedbr = method("fedbr")
    peaks = [measure(model, fedbr, alpha, 1).peak_memory_bytes for alpha in (1, 2, 3)]
    sizes = model.layout.block_bytes()
    # With α received blocks, α paths run; of the frozen copy the last α blocks are read.
    assert peaks[0] < peaks[1] < peaks[2]
    assert peaks[1] - peaks[0] >= sizes[2]


def test_resnet56_executes_what_the_fedalign_paper_counts():
    model = build_model(MODELS["resnet56"](), (3, 32, 32), 100)
    fedavg = measure(model, method(), model.depth, 1)
    assert fedavg.layer_macs == fedavg.forward_macs == pytest.approx(87.24e6, rel=1e-4)  # Table 5: 87.3 M
    fedalign = measure(model, method("fedalign"), model.depth, 1)
    assert fedalign.layer_macs - fedavg.layer_macs == pytest.approx(1.868e6, rel=1e-3)
    assert fedalign.layer_macs == pytest.approx(89.11e6, rel=1e-4)  # Table 5: 89.1 M
    # Steps 3 and 4 of the objective: X_S and X_F, X Xᵀ, and ten products of the power iteration, by hand.
    transmitting = 64 * (32 * 64 + 128 * 256)
    gram = 32 * 32 * 64 + 128 * 128 * 256
    power = 10 * (32 * 32 + 128 * 128)
    assert fedalign.forward_macs - fedalign.layer_macs == transmitting + gram + power


@pytest.mark.full
def test_a_device_skips_the_blocks_that_stochastic_depth_drops():
    model, chosen = build_model(MODELS["resnet18"](norm="batch"), (3, 32, 32), 10), method("stochdepth")
    kept, generator = chosen.objective.probabilities(model.residual_count), np.random.default_rng(0)
    found = []
    for _ in range(60):
        uniform = chosen.objective.draw(generator, 1)["uniform"][: model.residual_count]
        found.append(trace(model, chosen, model.depth, 1, {"dropped": uniform >= torch.tensor(kept)}).cost)
    mean = measure(model, chosen, model.depth, 1)
    assert mean.layer_macs == pytest.approx(np.mean([each.layer_macs for each in found]), rel=0.02)
    assert mean.launches == pytest.approx(np.mean([each.launches for each in found]), rel=0.02)
    assert mean.peak_memory_bytes >= max(each.peak_memory_bytes for each in found)


@pytest.mark.full
def test_gradaugs_work_is_the_mean_over_widths_and_sizes():
    model = build_model(MODELS["resnet18"](norm="batch"), (3, 32, 32), 10)
    chosen = build_method({"method": "gradaug", "subnets": 2}, LocalOptions())

    def macs(widths, sizes):
        draws = {"width": torch.tensor(widths, dtype=torch.float64), "size": torch.tensor(sizes)}
        return trace(model, chosen, model.depth, 1, draws).cost.layer_macs

    sizes, narrowest = chosen.objective.sizes, chosen.objective.min_width
    whole = macs([1.0, narrowest], [1.0, 1.0])
    drawn = [macs([0.8 + 0.2 * (part + 0.5) / 9, narrowest], [size, 1.0]) for part in range(9) for size in sizes]
    expected = whole + np.mean(drawn) - whole + np.mean([macs([1.0, narrowest], [1.0, size]) for size in sizes]) - whole
    mean = measure(model, chosen, model.depth, 1)
    assert mean.layer_macs == pytest.approx(expected, rel=0.01)
    assert mean.peak_memory_bytes == trace(model, chosen, model.depth, 1, {
        "width": torch.tensor([1.0, narrowest]), "size": torch.tensor([1.0, 1.0])
    }).cost.peak_memory_bytes  # fmt: skip


TABLE_5 = [
    ("stochdepth", {}, 82.4, 0.01),
    ("mixup", {}, 87.3, 0.001),
    ("fedprox", {}, 87.3, 0.001),
    # A sub-network of width 0.8 on images of 32, 28 and 24 has the 46.6 MMACs that the paper adds for n = 1. Its code
    # draws from four sizes, and widths up to 1: 40.4 for the narrowest sub-network, 52.6 for each other.
    ("gradaug", {"subnets": 1, "sizes": (1.0, 0.875, 0.75)}, 133.9, 0.005),
    ("gradaug", {"subnets": 1}, 87.24 + 40.39, 0.001),
    ("gradaug", {"subnets": 3}, 87.24 + 40.39 + 2 * 52.73, 0.003),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "options", "mmacs", "error"), TABLE_5)
def test_regularisers_execute_what_the_fedalign_paper_counts(name, options, mmacs, error):
    model = build_model(MODELS["resnet56"](norm="batch"), (3, 32, 32), 100)
    cost = measure(model, build_method({"method": name, **options}, LocalOptions()), model.depth, 1)
    assert cost.layer_macs / 1e6 == pytest.approx(mmacs, rel=error)


def test_moon_runs_three_forward_passes():
    model = build_model(MODELS["resnet56"](), (3, 32, 32), 100)
    moon = method("moon")
    adapted = moon.objective.adapt(model)
    cost = measure(adapted, moon, adapted.depth, 1)
    assert cost.layer_macs == pytest.approx(262.2e6, rel=1e-3)  # Table 5


def test_hybrid_paths_compute_shared_prefixes_once():
    model = build_model(MODELS["resnet18"](), (3, 32, 32), 100)
    depth = model.depth
    alone = [_block_macs(model, index) for index in range(depth)]
    cost = measure(model, method("fedmlb"), depth, 1)
    # Path m adds frozen blocks m+1 … M, so block j (from 1) runs 1 + (j - 1) times.
    assert cost.layer_macs == sum(macs * (1 + index) for index, macs in enumerate(alone))


def _block_macs(model, index):
    shape = model.sample_shape if index == 0 else model.tap_shapes[index - 1]
    block = list(model.blocks.values())[index].to("meta")
    with Recorder() as recorder:
        block(meta(1, *shape))
    return sum(record.macs for record in recorder.records)


@pytest.mark.parametrize(
    ("name", "model", "options"),
    [
        ("fedavg", "cnn", {"norm": "batch"}),
        ("fedmlb", "cnn", {}),
        pytest.param("fedalign", "resnet18", {"norm": "batch", "stem": "imagenet"}, marks=pytest.mark.full),
    ],
)
def test_the_law_gives_exactly_what_a_measurement_gives(name, model, options):
    built = build_model(MODELS[model](**options), (3, 32, 32), 10)
    costs = CostModel(built)
    chosen = method(name, momentum=0.9, weight_decay=1e-3, clip_norm=10)
    for batch in (1, 2, 7, 64):
        assert costs.cost(chosen, built.depth, batch) == measure(built, chosen, built.depth, batch)
    assert None not in costs._laws.values()


class Pairs(Objective):
    """A loss over pairs of images."""

    def loss(self, local, batch, context):
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = F.cross_entropy(logits, batch.labels)
        return Loss(cross_entropy + (logits @ logits.T).square().mean(), cross_entropy)


def test_a_loss_over_pairs_is_measured_at_each_batch():
    model = classifier(6, 3)
    costs = CostModel(model)
    chosen = with_objective(Pairs())
    for batch in (4, 9):
        cost = costs.cost(chosen, 1, batch)
        assert cost == measure(model, chosen, 1, batch)
        assert cost.forward_macs == batch * 6 * 3 + batch * batch * 3
        assert cost.layer_macs == batch * 6 * 3


NUMBERS = {
    "unique": (lambda x: len(x.unique()), "unique", "one_hot"),
    "mask": (lambda x: x[x > 0].mean(), r"indexing by a mask \(x\[mask\]\)", r"torch\.where\(mask, x, 0\)"),
    "list": (lambda x: sum(x.tolist()), "", "keep"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_refusal_names_the_method_the_call_and_what_to_write_instead(name):
    function, call, instead = NUMBERS[name]

    class Own(Objective):
        def loss(self, local, batch, context):
            cross_entropy = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
            return Loss(cross_entropy * function(batch.inputs[:, 0]), cross_entropy)

    with pytest.raises(DataDependentError, match=f"^method 'own': its loss .*{call}.*; .*{instead}"):
        measure(classifier(6, 3), with_objective(Own()), 1, 2)


def judging(layer):
    """A model with a layer that computes as given."""

    class Layer(nn.Module):
        def forward(self, inputs):
            return layer(inputs)

    blocks = {"first": nn.Sequential(nn.Linear(6, 6), Layer()), "last": nn.Linear(6, 3)}
    return BlockModel(blocks, sample_shape=(6,), classes=3, align_block=1)


def test_a_model_that_depends_on_numbers_is_named_and_not_its_loss():
    with pytest.raises(DataDependentError, match=r"^method 'own': its model calls "):
        measure(judging(lambda x: x if x.mean() > 0 else -x), with_objective(CrossEntropy()), 2, 2)


class Drawing(Objective):
    """Its loss is multiplied by a number."""

    how: str

    def loss(self, local, batch, context):
        plain = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
        return Loss(plain * DRAWS[self.how](), plain)


DRAWS = {
    "rand": lambda: torch.rand(()),
    "bernoulli": lambda: F.dropout(torch.ones(4), 0.5).sum(),
    "numpy.random": np.random.random,
    "random": random.random,
}


@pytest.mark.parametrize("how", DRAWS)
def test_a_loss_that_draws_from_a_global_generator_is_named_in_a_warning(how):
    with pytest.warns(GlobalRandomness, match=rf"^method 'own': its .* draws from a global .* \(.*{how}") as told:
        measure(judging(lambda x: x), with_objective(Drawing(how=how)), 2, 2)
    assert len(told) == 1
    with pytest.warns(GlobalRandomness, match=r"^method 'own': its model draws from a global .* \(bernoulli\)"):
        measure(judging(nn.Dropout()), with_objective(CrossEntropy()), 2, 2)


@pytest.mark.parametrize(
    ("model", "options", "name"),
    [
        ("cnn", {}, "fedmlb"),
        ("shufflenet", {"norm": "batch"}, "fedprox"),
        pytest.param("mobilenet_v2", {}, "fedavg", marks=pytest.mark.full),
        pytest.param("resnet56", {}, "fedalign", marks=pytest.mark.full),
    ],
)
def test_tensors_without_data_execute_what_tensors_with_data_execute(model, options, name):
    built = build_model(MODELS[model](**options), (3, 16, 16), 10)
    chosen = method(name, momentum=0.9, clip_norm=10)
    real, counted = _records(built, chosen), trace(built, chosen, built.depth, 2).records
    assert [record._replace(live=0) for record in real] == [record._replace(live=0) for record in counted]
    assert max(record.live for record in real) == max(record.live for record in counted)


def _records(model, chosen):
    layout = model.layout
    vector = initial_vector(model, 0)
    parameters, buffers = (half.clone() for half in layout.split(vector))
    received = vector.clone()
    context = Context(
        model,
        {name: layout.weights(*layout.split(received)) for name in chosen.objective.frozen},
        dict.fromkeys(chosen.objective.vectors, received[: layout.parameter_count]),
        {},
        model.depth,
    )
    batch = Batch(torch.randn(2, *model.sample_shape), torch.tensor([0, 1]))
    memory = chosen.rule.begin(parameters, {}, chosen.local, 1)
    recorder = Recorder()
    with recorder:
        local_step(
            *(chosen.objective, chosen.rule, parameters, buffers, batch, context, memory, chosen.local, 0.1),
            entering=recorder.entering,
        )
    return recorder.records


def test_the_cross_entropy_objective_alone_needs_nothing_but_the_model():
    cost = measure(classifier(6, 3), with_objective(CrossEntropy()), 1, 2)
    assert cost.launches == sum(operator.count for operator in cost.operators) > 0
    assert cost.training_flops == sum(operator.flops * operator.count for operator in cost.operators)
    assert cost.bytes_touched == sum(operator.bytes * operator.count for operator in cost.operators)


def test_one_hot_rows_of_a_given_number_of_classes_do_not_depend_on_data():
    with Recorder() as recorder:
        assert F.one_hot(fake(4, dtype=torch.int64), num_classes=5).shape == (4, 5)
        assert F.one_hot(fake(4, dtype=torch.int64), 5).shape == (4, 5)
    assert [each.name for each in recorder.records] == ["new_zeros", "scatter_"] * 2

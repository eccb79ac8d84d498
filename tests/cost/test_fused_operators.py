"""Fused operators cost what the same arithmetic costs when it is written out; operators without a formula are named."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost import CostModel
from edgefl.cost.formulas import is_counted, uncounted, work_of
from edgefl.cost.measure import trace
from edgefl.cost.recorder import Recorder
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import METHODS
from edgefl.models.fake import Fake, fake
from edgefl.models.registry import MODELS, build_model

SHIPPED = [name for name, _ in MODELS if name not in ("python", "timm", "torchvision", "transformers")]
SERIES = torch.randn(4, 24, 12)
CELLS = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}


def cost(function, *leaves, training=True):
    """MACs and FLOPs on tensors with data, with the gradients by ``leaves``."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    with Recorder(with_data=True) as recorder:
        output = function(*leaves)
        if training:
            torch.autograd.grad(output.abs().sum(), leaves, allow_unused=True)
    assert not uncounted(_Each(record) for record in recorder.records)
    return sum(record.macs for record in recorder.records), sum(record.flops for record in recorder.records)


class _Each:
    def __init__(self, record):
        self.name, self.bytes, self.count = record.name, record.bytes, 1


def recurrent(kind, **options):
    layer = kind(12, 32, batch_first=True, **options)
    matrices = sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)
    return layer, 4 * 24 * matrices


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", CELLS)
def test_recurrent_layers_have_the_products_of_their_matrices(kind, options):
    layer, macs = recurrent(kind, **options)
    assert cost(lambda x: layer(x)[0], SERIES, training=False)[0] == macs
    weights = list(layer.parameters())
    with Recorder(with_data=True) as recorder:
        torch.autograd.grad(layer(SERIES.clone().requires_grad_())[0].sum(), weights)
    trained = sum(record.macs for record in recorder.records)
    assert 2.6 * macs < trained <= 3 * macs


def test_an_lstm_costs_what_its_cell_costs_step_by_step():
    layer, cell = nn.LSTM(12, 32, batch_first=True), nn.LSTMCell(12, 32)

    def spelled(x):
        state = None
        for step in range(x.shape[1]):
            state = cell(x[:, step], state)
        return state[0]

    counts = []
    for module, function in ((layer, lambda x: layer(x)[0][:, -1]), (cell, spelled)):
        with Recorder(with_data=True) as recorder:
            torch.autograd.grad(function(SERIES.clone().requires_grad_()).sum(), list(module.parameters()))
        counts.append(sum(record.flops for record in recorder.records))
    assert counts[0] == pytest.approx(counts[1], rel=0.2)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.zeros(16, 16)}])
def test_attention_costs_what_its_products_cost(options):
    query, key, value = (torch.randn(2, 4, 16, width) for width in (8, 8, 8))
    fused = cost(lambda *all: F.scaled_dot_product_attention(*all, **options), query, key, value, training=False)
    plain = cost(lambda q, k, v: torch.softmax(q @ k.mT, dim=3) @ v, query, key, value, training=False)
    assert fused[0] == plain[0] == 2 * 4 * 16 * 16 * 16
    assert fused[1] == pytest.approx(plain[1], rel=0.1)
    trained = cost(lambda *all: F.scaled_dot_product_attention(*all, **options), query, key, value)[0]
    assert trained == pytest.approx(3 * plain[0], rel=0.2)


CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "dropout": {"dropout_p": 0.1},
    "mask": {"attn_mask": torch.zeros(16, 16)},
    "boolean mask": {"attn_mask": torch.ones(16, 16, dtype=torch.bool)},
    "trained mask": {"attn_mask": torch.zeros(1, 1, 16, 16, requires_grad=True)},
}
PLACES = {
    "of heads": torch.zeros(2, 4, 16, 8),
    "transposed": torch.zeros(2, 16, 4, 8).transpose(1, 2),
    "without heads": torch.zeros(2, 16, 8),
    "of 64 bits": torch.zeros(2, 4, 16, 8, dtype=torch.float64),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_pytorch_chooses_the_kernel_of_attention_as_on_a_cpu(places, options):
    def executed(query, recorder):
        with recorder:
            output = F.scaled_dot_product_attention(query, query, query, **options)
            torch.autograd.grad(output.sum(), query)
        return [record.name for record in recorder.records]

    with Recorder():
        query = Fake.of(places.to("meta")).requires_grad_()
    assert executed(query, Recorder()) == executed(places.clone().requires_grad_(), Recorder(with_data=True))


@pytest.mark.parametrize("length", [16, 200, 1000])
def test_causal_attention_leaves_out_what_no_query_of_a_block_sees(length):
    with Recorder():
        query = fake(2, 4, length, 8).requires_grad_()
    with Recorder() as recorder:
        torch.autograd.grad(F.scaled_dot_product_attention(query, query, query, is_causal=True).sum(), query)
    forward, backward = (each.macs for each in recorder.records if "attention" in each.name)
    block = 32 if length < 192 else 64 if length < 768 else 256
    pairs = sum(min(block * (place // block + 1), length) for place in range(length))
    assert (forward, backward) == (2 * 4 * pairs * 16, 2 * 4 * pairs * 40)


def of_cuda(function, *shapes):
    """The operators of a function and of its gradients on CUDA, and those on a CPU."""
    found = []
    for backend in ("cuda", "cpu"):
        with Recorder():
            leaves = [fake(*shape).requires_grad_() for shape in shapes]
        with Recorder(backend) as recorder:
            torch.autograd.grad(function(*leaves).sum(), leaves)
        assert recorder.differs
        found.append(recorder)
    return found


@pytest.mark.parametrize("options", [{}, CALLS["causal"], CALLS["dropout"], CALLS["boolean mask"]], ids=str)
def test_attention_is_one_operator_on_cuda(options):
    cuda, cpu = of_cuda(lambda x: F.scaled_dot_product_attention(x, x, x, **options), (2, 4, 16, 8))
    fused = "_scaled_dot_product_efficient_attention"
    assert [record.name for record in cuda.records if "attention" in record.name] == [fused, f"{fused}_backward"]
    assert uncounted(_Each(record) for record in cuda.records) == {}
    forward, backward = (sum(each.macs for each in both.records) for both in (cuda, cpu))
    assert forward == pytest.approx(backward, rel=0.3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, more) for kind in CELLS for more in ({}, {"num_layers": 2, "bidirectional": True})),
     (nn.LSTM, {"proj_size": 7})],
    ids=str,
)  # fmt: skip
def test_a_recurrent_layer_is_one_operator_on_cuda(kind, options):
    layer = kind(12, 32, batch_first=True, **options)
    shapes = [weight.shape for weight in layer.parameters()]

    def called(series, *weights):
        layer._flat_weights = list(weights)
        return layer(series)[0]

    cuda, cpu = of_cuda(called, (4, 24, 12), *shapes)
    assert [record.name for record in cuda.records if "rnn" in record.name] == ["_cudnn_rnn", "_cudnn_rnn_backward"]
    one, other = (sum(each.macs for each in both.records) for both in (cuda, cpu))
    assert one == pytest.approx(other, rel=0.1)
    assert len(cuda.records) < 8


def test_projections_of_attention_are_layers():
    layer, x = nn.MultiheadAttention(32, 4, batch_first=True), torch.randn(2, 10, 32)
    with Recorder(with_data=True) as recorder:
        layer(x, x, x)
    assert sum(record.macs for record in recorder.records if record.layer) == 2 * 10 * 32 * 4 * 32


@pytest.mark.parametrize(("name", "options"), [("adamw", {}), ("adagrad", {}), ("sgd", {"momentum": 0.9})])
def test_a_fused_optimizer_computes_what_its_step_computes(name, options):
    """The rule of edgefl executes the same step in single operators."""
    model, vectors = build_model(MODELS["mlp"](), (9,), 3), [torch.ones(1000) for _ in range(4)]
    method = build_method("fedavg", LocalOptions(batch=4, optimizer=name, **options))
    lines = [record for record in trace(model, method, model.depth, 4).records if record.phase == "update"]
    kinds = {"adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
    parameter = nn.Parameter(vectors[0])
    optimizer = kinds[name]([parameter], lr=0.1, fused=True, **options)
    parameter.grad = vectors[1]
    optimizer.step()
    with Recorder(with_data=True) as recorder:
        optimizer.step()
    (fused,) = (record for record in recorder.records if "fused" in record.name)
    each = sum(record.flops for record in lines) / model.layout.parameter_count
    assert fused.flops / 1000 == pytest.approx(each, rel=0.01)
    assert 16_000 < fused.bytes < sum(record.bytes for record in lines) * 1000 / model.layout.parameter_count


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_attention_on_gpus_has_the_same_products(kernel):
    shapes = (6, 8), (9, 8), (9, 5), (6, 5)
    query, key, value, out = (torch.zeros(2, 4, *shape, device="meta") for shape in shapes)
    name, macs = f"_scaled_dot_product_{kernel}_attention", 2 * 4 * 6 * 9
    assert work_of(name, (query, key, value), {}, [out]).macs == macs * (8 + 5)
    assert work_of(f"{name}_backward", (out, query, key, value), {}, [query]).macs == macs * (3 * 8 + 2 * 5)


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (F.bilinear, ((8, 20), (8, 30), (16, 20, 30)), 8 * 16 * 20 * 30),
        (lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"), ((9, 7), (5, 7)), 9 * 5 * 7),
        (torch.cdist, ((2, 40, 7), (2, 50, 7)), 2 * 40 * 50 * 7),
        (F.pdist, ((6, 4),), 15 * 4),
        (lambda x, y, z: torch.addbmm(z, x, y), ((3, 4, 5), (3, 5, 6), (4, 6)), 3 * 4 * 5 * 6),
        (torch.outer, ((6,), (7,)), 0),
        (torch.addr, ((6, 7), (6,), (7,)), 6 * 7),
        (lambda x, y: torch.view_as_complex(x) @ torch.view_as_complex(y), ((3, 4, 2), (4, 5, 2)), 4 * 3 * 4 * 5),
        (lambda x, y: torch.tensordot(x, y, dims=2), ((3, 4, 5), (4, 5, 6)), 3 * 4 * 5 * 6),
    ],
)  # fmt: skip
def test_other_products_have_their_closed_forms(function, shapes, macs):
    assert cost(function, *(torch.randn(shape) for shape in shapes), training=False)[0] == macs
    assert cost(function, *(torch.randn(shape) for shape in shapes))[1] > 2 * macs


def test_transforms_have_their_closed_forms():
    x = torch.randn(8, 16, 16)
    assert cost(torch.fft.fft, torch.complex(x, x), training=False) == (0, 5 * 8 * 16 * 16 * 4)
    assert cost(torch.fft.rfft2, x, training=False)[1] == pytest.approx(2.5 * 8 * 256 * 8, rel=0.3)
    assert cost(torch.fft.irfft, torch.fft.rfft(x), training=False) == (0, 2.5 * 8 * 16 * 16 * 4)


def test_products_are_found_in_inference_mode_where_pytorch_does_not_decompose_layers():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        plain = cost(lambda each: nn.Linear(16, 32)(each).relu(), x, training=False)
    with torch.inference_mode(), Recorder(with_data=True) as recorder:
        nn.Linear(16, 32)(x).relu()
    assert sum(record.macs for record in recorder.records) == plain[0] == 2 * 6 * 16 * 32
    with torch.inference_mode(), Recorder(with_data=True) as recorder:
        layer(x)
    named = uncounted(_Each(record) for record in recorder.records)
    assert set(named) <= {"_transformer_encoder_layer_fwd"}


def test_an_operator_without_a_formula_is_named_with_its_share_of_the_bytes():
    with Recorder(with_data=True) as recorder:
        torch.linalg.solve(torch.eye(8), torch.ones(8, 3)) + 1
    named = uncounted(_Each(record) for record in recorder.records)
    assert list(named) == ["_linalg_solve_ex"]
    assert 0.5 < named["_linalg_solve_ex"] < 1
    assert not is_counted("nms")


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_no_method_executes_an_operator_without_a_formula(name):
    spec = MODELS["resnet18"]() if name in ("gradaug", "stochdepth") else MODELS["cnn"](norm="batch")
    costs = CostModel(build_model(spec, (3, 8, 8), 4))
    method = build_method(name, LocalOptions(batch=4))
    assert uncounted(costs.cost(method, costs.model.depth, 4).operators) == {}


@pytest.mark.parametrize("name", SHIPPED)
def test_no_shipped_model_executes_an_operator_without_a_formula(name):
    shape = {"cnn1d": (3, 64), "char_transformer": (16,), "mlp": (9,)}.get(name, (3, 32, 32))
    costs = CostModel(build_model(MODELS[name](), shape, 10))
    assert uncounted(costs.cost(build_method("fedavg", LocalOptions(batch=4)), costs.model.depth, 4).operators) == {}

"""A step that is counted without data has the operators and the peak memory of the same step on a CPU's tensors."""

import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from edgefl.cost.measure import measure
from edgefl.cost.recorder import Recorder
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.fake import fake
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.torch_settings import neutral_torch

IMAGES, SERIES, BATCH = (3, 32, 32), (40, 12), 16


class Live(TorchDispatchMode):
    """Adds up the storages that exist, from those that are ``held`` before, and counts the operators that compute."""

    def __init__(self, *held):
        super().__init__()
        self._alive, self.bytes = {}, 0
        self.launches = 0
        self._see(held)
        self.peak = self.bytes

    def _see(self, value):
        """True if one of the tensors has a storage that was not known."""
        if isinstance(value, list | tuple):
            return sum(self._see(each) for each in value) > 0
        if not isinstance(value, Tensor):
            return False
        storage = value.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place in self._alive:
            return False

        def gone(_):
            self.bytes -= size
            del self._alive[place]

        self.bytes += size
        self._alive[place] = weakref.ref(storage, gone)
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._see([*args, *(kwargs or {}).values()])
        result = func(*args, **(kwargs or {}))
        made = self._see(result)
        self.peak = max(self.peak, self.bytes)
        allocates = "empty" in func._schema.name or torch.Tag.inplace_view in func.tags
        self.launches += (made or func._schema.is_mutable) and not allocates
        return result


def real_step(model, method):
    """The step on tensors with data."""
    dtype = torch.bfloat16 if method.local.precision == "bfloat16" else torch.float32
    parameters, buffers = (part.to(dtype, copy=True) for part in model.layout.split(initial_vector(model, 0)))
    tokens, shape = model.tokens, (BATCH, *model.sample_shape)
    inputs = torch.randint(0, tokens, shape) if tokens else torch.randn(shape, dtype=dtype)
    labels = torch.zeros(BATCH, *model.task.label_shape(model.classes, model.sample_shape), dtype=torch.int64)
    memory = method.rule.begin(parameters, {}, method.local, 1)
    if dtype == torch.bfloat16:
        model._constants = {
            key: each.to(dtype) if each.is_floating_point() else each for key, each in model._constants.items()
        }
    constants = [*model._constants.values()]
    context = Context(model, {}, {}, {}, model.depth)
    objective, rule, local = method.objective, method.rule, method.local
    with Live(parameters, buffers, inputs, labels, *memory.values(), *constants) as live:
        step = parameters, buffers, Batch(inputs, labels), context, memory, local, 0.1
        local_step(objective, rule, *step, precision="bfloat16" if local.precision == "autocast" else "float32")
    return live


def separable(inputs, outputs, stride):
    depthwise = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
    pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
    return [depthwise, nn.BatchNorm2d(inputs), nn.ReLU6(), pointwise, nn.BatchNorm2d(outputs), nn.ReLU6()]


class Convolutions(nn.Module):
    def __init__(self, *, last=False):
        super().__init__()
        self.last = last
        self.first, self.second = nn.Conv2d(3, 16, 5, padding=2), nn.Conv2d(16, 32, 3, padding=1)
        self.hidden, self.head = nn.Linear(32 * 64, 64), nn.Linear(64, 10)

    def forward(self, inputs):
        if self.last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        for layer in (self.first, self.second):
            inputs = F.max_pool2d(layer(inputs).relu(), 2)
        return self.head(self.hidden(inputs.flatten(1)).relu())


class Layer(nn.Module):
    def __init__(self, width, *, causal=False):
        super().__init__()
        self.norm, self.other, self.causal = nn.LayerNorm(width), nn.LayerNorm(width), causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, inputs):
        batch, places, width = inputs.shape
        parts = self.qkv(self.norm(inputs)).view(batch, places, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=self.causal).transpose(1, 2)
        inputs = inputs + self.out(seen.reshape(batch, places, width))
        return inputs + self.down(F.gelu(self.up(self.other(inputs))))


class Vit(nn.Module):
    def __init__(self, patch, width=64, depth=2, **options):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(torch.zeros(1, (32 // patch) ** 2, width))
        self.layers = nn.Sequential(*(Layer(width, **options) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, inputs):
        return self.head(self.layers(self.patches(inputs).flatten(2).transpose(1, 2) + self.place).mean(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 64, 0.0, batch_first=True)
        self.embed, self.head = nn.Linear(12, 64), nn.Linear(64, 10)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, inputs):
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        return self.head(self.layers(self.embed(inputs), mask=mask)[:, -1])


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(12, 64, batch_first=True, **options)
        self.head = nn.Linear(128 if options.get("bidirectional") else 64, 10)

    def forward(self, inputs):
        return self.head(self.layer(inputs)[0][:, -1])


class Unet(nn.Module):
    def __init__(self):
        super().__init__()

        def twice(inputs, outputs):
            sides = ((inputs, outputs), (outputs, outputs))
            layers = ((nn.Conv2d(*each, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()) for each in sides)
            return nn.Sequential(*(layer for three in layers for layer in three))

        self.one, self.two, self.three = twice(3, 16), twice(16, 32), twice(32, 64)
        self.up_two, self.up_one = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.down_two, self.down_one, self.head = twice(64, 32), twice(32, 16), nn.Conv2d(16, 10, 1)

    def forward(self, inputs):
        one = self.one(inputs)
        two = self.two(F.max_pool2d(one, 2))
        up = self.down_two(torch.cat([self.up_two(self.three(F.max_pool2d(two, 2))), two], 1))
        return self.head(self.down_one(torch.cat([self.up_one(up), one], 1))).mean((2, 3))


class OwnTensors(nn.Module):
    """It makes tensors in its forward pass, keeps some in a list, and reads a number of its own."""

    def __init__(self):
        super().__init__()
        self.scales, self.head = [torch.ones(3, 1, 1), torch.full((32, 1), 2.0)], nn.Linear(3072, 10)

    def forward(self, inputs):
        places = torch.arange(inputs.shape[-1], device=inputs.device)
        weights = torch.where(places < int(places.max()), torch.tensor(1.0), torch.zeros(32))
        for scale in self.scales:
            inputs = inputs * scale
        return self.head((inputs * weights).flatten(1))


class ChangedView(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(4 * 1024, 10)

    def forward(self, inputs):
        part = self.layer(inputs)[:, :4]
        part.add_(part.mean())
        return self.head((part * part).flatten(1))


def ordinary(make, shape=IMAGES, **options):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            return make()

    return build_model(Made(**options), shape, 10)


def shipped(name, **options):
    return build_model(MODELS[name](**options), IMAGES, 10)


def gpt2(attention="eager", **options):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[transformers]'")
    args = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 64, "vocab_size": 96}
    dropouts = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0) | {"attn_implementation": attention}
    spec = MODELS["transformers"](transformers="gpt2", args=args | dropouts, head="next_token", **options)
    return build_model(spec, (32,), 96, tokens=True)


def gpt2_with_adapters():
    pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")
    return gpt2(lora={"targets": ["c_attn"], "rank": 4, "alpha": 8})


FULL, EXTRAS = pytest.mark.full, [pytest.mark.full, pytest.mark.extras]
NETWORKS = [
    pytest.param(partial(ordinary, Convolutions), id="convolutions", marks=FULL),
    pytest.param(partial(ordinary, lambda: Convolutions(last=True)), id="channels-last", marks=FULL),
    pytest.param(
        partial(
            ordinary,
            lambda: nn.Sequential(
                nn.Conv2d(3, 16, 3, 2, 1), *separable(16, 32, 1), *separable(32, 64, 2),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
            ),
        ),
        id="depthwise", marks=FULL,
    ),
    pytest.param(partial(shipped, "resnet18", norm="batch"), id="resnet", marks=FULL),
    pytest.param(partial(ordinary, lambda: Vit(8)), id="vit, 16 places", marks=FULL),
    pytest.param(partial(ordinary, lambda: Vit(2)), id="vit, 256 places"),
    pytest.param(partial(ordinary, lambda: Vit(1, 32, 1)), id="vit, 1024 places", marks=FULL),
    pytest.param(partial(ordinary, lambda: Vit(2, causal=True)), id="causal attention", marks=FULL),
    pytest.param(partial(ordinary, Encoder, SERIES), id="encoder with a mask", marks=FULL),
    pytest.param(partial(ordinary, partial(Recurrent, nn.LSTM), SERIES), id="lstm"),
    pytest.param(
        partial(ordinary, partial(Recurrent, nn.LSTM, num_layers=2, bidirectional=True), SERIES),
        id="lstm of two layers", marks=FULL,
    ),
    pytest.param(partial(ordinary, partial(Recurrent, nn.GRU), SERIES), id="gru", marks=FULL),
    pytest.param(partial(ordinary, Unet), id="u-net", marks=FULL),
    pytest.param(partial(ordinary, lambda: Vit(4), trainable=["head"]), id="frozen but the head", marks=FULL),
    pytest.param(partial(ordinary, OwnTensors), id="tensors of its own"),
    pytest.param(partial(ordinary, ChangedView), id="a view changed in place", marks=FULL),
    pytest.param(gpt2, id="gpt-2", marks=EXTRAS),
    pytest.param(gpt2_with_adapters, id="gpt-2 with LoRA", marks=EXTRAS),
    pytest.param(partial(gpt2, "sdpa"), id="gpt-2 with fused attention", marks=EXTRAS),
    pytest.param(partial(gpt2, checkpointing=True), id="gpt-2 recomputed", marks=EXTRAS),
]  # fmt: skip


def compare(model, **local):
    method = build_method("fedavg", LocalOptions(**{"batch": BATCH, "weight_decay": 0, "clip_norm": None, **local}))
    with neutral_torch():
        counted, real = measure(model, method, model.depth, BATCH), real_step(model, method)
    assert counted.peak_memory_bytes == pytest.approx(real.peak, rel=0.05)
    assert counted.launches == pytest.approx(real.launches, rel=0.1)
    return counted


@pytest.mark.parametrize("make", NETWORKS)
def test_a_step_has_the_peak_memory_and_the_launches_of_one_with_data(make):
    compare(make())


@pytest.mark.full
def test_adamw_has_the_peak_memory_and_the_launches_of_one_with_data():
    compare(ordinary(lambda: Vit(4)), optimizer="adamw")


@pytest.mark.parametrize(
    ("make", "precision"),
    [
        (partial(ordinary, lambda: Vit(2)), "autocast"),
        pytest.param(partial(ordinary, lambda: Vit(2)), "bfloat16", marks=FULL),
        pytest.param(partial(shipped, "resnet18", norm="batch"), "autocast", marks=FULL),
        pytest.param(partial(ordinary, partial(Recurrent, nn.LSTM), SERIES), "bfloat16", marks=FULL),
        pytest.param(gpt2_with_adapters, "autocast", marks=EXTRAS),
        pytest.param(gpt2_with_adapters, "bfloat16", marks=EXTRAS),
    ],
)
def test_two_byte_numbers_have_the_peak_memory_and_the_launches_of_those_with_data(make, precision):
    plain = compare(make(), optimizer="adamw")
    small = compare(make(), optimizer="adamw", precision=precision)
    assert small.peak_memory_bytes < (0.95 if precision == "autocast" else 0.7) * plain.peak_memory_bytes
    assert small.layer_macs == plain.layer_macs


@pytest.mark.full
@pytest.mark.extras
def test_a_base_of_two_bytes_is_read_without_copies_under_autocast():
    pytest.importorskip("peft", reason="peft is not installed: pip install 'edgefl[peft]'")
    model = gpt2(lora={"targets": ["c_attn"], "rank": 4, "alpha": 8, "base": "bfloat16"})
    method = build_method("fedavg", LocalOptions(batch=BATCH, precision="autocast"))
    with neutral_torch():
        counted = measure(model, method, model.depth, BATCH)
        model._constants = {
            key: each.to(torch.bfloat16) if each.is_floating_point() and each.dim() > 1 else each
            for key, each in model._constants.items()
        }
        real = real_step(model, method)
    assert counted.peak_memory_bytes == pytest.approx(real.peak, rel=0.05)
    assert counted.launches == pytest.approx(real.launches, rel=0.1)


def test_accumulated_gradients_have_the_peak_memory_and_the_launches_of_those_with_data():
    """Minibatches of 5, 5, 5 and 1; the third one is counted as the second."""
    model = ordinary(lambda: Vit(4))
    whole, parts = compare(model, optimizer="adamw"), compare(model, optimizer="adamw", batch=5, accumulate=4)
    assert parts.peak_memory_bytes < 0.5 * whole.peak_memory_bytes
    assert parts.layer_macs == whole.layer_macs


class Checkpointed(nn.Module):
    """``reentrant``: that of ``torch.utils.checkpoint``; ``None`` without it."""

    def __init__(self, reentrant):
        super().__init__()
        self.stem, self.head, self.reentrant = nn.Conv2d(3, 32, 4, 4), nn.Linear(32, 10), reentrant
        self.layers = nn.ModuleList(Layer(32) for _ in range(4))

    def forward(self, inputs):
        inputs = self.stem(inputs).flatten(2).transpose(1, 2)
        for layer in self.layers:
            keeps = self.reentrant is None
            inputs = layer(inputs) if keeps else checkpoint(layer, inputs, use_reentrant=self.reentrant)
        return self.head(inputs.mean(1))


def trained_once(net, inputs, labels, autocast, entering=lambda _: None):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):  # which keeps its copies of weights until it ends
        loss = F.cross_entropy(net(inputs), labels)
    entering("backward")
    loss.backward()


def of(net, tensors):
    """The network with these tensors in place of its parameters."""
    for name, tensor in tensors.items():
        module, _, key = name.rpartition(".")
        net.get_submodule(module)._parameters[key] = tensor
    return net


@pytest.mark.parametrize(
    ("reentrant", "autocast"),
    [(False, False), pytest.param(True, False, marks=FULL), pytest.param(False, True, marks=FULL)],
)
def test_a_recomputed_layer_costs_its_products_again_and_saves_memory(reentrant, autocast):
    net, plain = Checkpointed(reentrant), Checkpointed(None)
    shapes = {name: tensor.shape for name, tensor in net.named_parameters()}
    recorders = []
    for each in (net, plain):
        with Recorder():
            of(each, {name: fake(*shape).requires_grad_() for name, shape in shapes.items()})
            inputs, labels = fake(8, *IMAGES), fake(8, dtype=torch.int64)
        with Recorder() as recorder:
            trained_once(each, inputs, labels, autocast, recorder.entering)
        recorders.append(recorder)
    checkpointed, kept = recorders
    peaks = [sum(each.brought.values()) + max(record.live for record in each.records) for each in recorders]
    tensors = {name: torch.randn(shape).requires_grad_() for name, shape in shapes.items()}
    inputs, labels = torch.randn(8, *IMAGES), torch.zeros(8, dtype=torch.int64)
    with Live(*tensors.values(), inputs, labels) as live:
        trained_once(of(net, tensors), inputs, labels, autocast)
    assert peaks[0] == pytest.approx(live.peak, rel=0.05)
    assert peaks[0] < 0.5 * peaks[1]
    assert len(checkpointed.records) == pytest.approx(live.launches, rel=0.1)
    assert products(checkpointed, "forward") == products(kept, "forward")
    layers = products(kept, "forward") - 8 * (64 * 32 * 48 + 32 * 10)
    again = products(checkpointed, "backward") - products(kept, "backward")
    assert 0.6 * layers < again <= layers  # it stops once it has what the backward pass reads


def products(recorder, phase):
    return sum(record.macs for record in recorder.records if record.phase == phase)

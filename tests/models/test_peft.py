"""LoRA: adapters are what is trained, sent and averaged, and a step costs what PyTorch measures."""

import copy
import sys

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from edgefl.cost.law import CostModel
from edgefl.cost.measure import measure
from edgefl.cost.method_cost import method_cost
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.final_models import write_model
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.random_layers import KEY
from edgefl.models.registry import MODELS, build_model, initial_vector

pytestmark = pytest.mark.extras
peft = pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FEDAVG = build_method("fedavg", LocalOptions(weight_decay=0.0, clip_norm=None))
BATCH = 16


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(256, 512), nn.Linear(512, 512), nn.Linear(512, 10)
        self.drop = nn.Dropout(0.0)

    def forward(self, inputs):
        return self.head(self.drop(self.second(self.first(inputs).relu()).relu()))


class Perceptron(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Mlp()


def mlp(**options):
    return build_model(Perceptron(lora={"targets": ["first", "second"], "rank": 4}, **options), (256,), 10)


def gpt2(**options):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[transformers]'")
    args = {"n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 64, "vocab_size": 96}
    dropouts = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    spec = MODELS["transformers"](
        transformers="gpt2", args=args | dropouts, head="next_token",
        lora={"targets": ["c_attn", "attn.c_proj"], "rank": 4, "alpha": 8}, **options,
    )  # fmt: skip
    return build_model(spec, (32,), 96, tokens=True)


def vit(**options):
    pytest.importorskip("timm", reason="timm is not installed: pip install -e '.[timm]'")
    spec = MODELS["timm"](
        timm="vit_tiny_patch16_224", args={"depth": 3, "patch_size": 4}, trainable=["head"],
        lora={"targets": ["qkv"], "rank": 8}, **options,
    )  # fmt: skip
    return build_model(spec, (3, 32, 32), 10)


THREE = pytest.mark.parametrize("make", [gpt2, vit, mlp], ids=lambda make: make.__name__)


def batch_of(model):
    inputs = torch.randint(0, 96, (BATCH, 32)) if model.tokens else torch.randn(BATCH, *model.sample_shape)
    return Batch(inputs, torch.arange(BATCH) % model.classes)


def step_of(model):
    """One local step, executed with numbers."""
    vector, batch = initial_vector(model, 0), batch_of(model)
    parameters, buffers = (each.clone() for each in model.layout.split(vector))
    context = Context(model, {}, {}, {}, model.depth, {KEY: torch.tensor(1)} if model.random else {})
    memory = FEDAVG.rule.begin(parameters, {}, FEDAVG.local, 1)

    def step():
        with using(training=True):
            return local_step(
                FEDAVG.objective, FEDAVG.rule, parameters, buffers, batch, context, memory, FEDAVG.local, 0.1
            )

    return step, sum(each.untyped_storage().nbytes() for each in (parameters, buffers, *batch))


def frozen_bytes(model):
    """Weights that the step reads and does not train."""
    trained = {id(each) for block in model.blocks.values() for each in block.parameters() if each.requires_grad}
    others = {id(each): each for block in model.blocks.values() for each in [*block.parameters(), *block.buffers()]}
    return sum(each.nbytes for key, each in others.items() if key not in trained)


@THREE
def test_only_adapters_and_what_is_trainable_travel(make):
    model = make()
    module = nn.ModuleDict(dict(model.blocks.items()))
    adapters = sum(each.numel() for name, each in module.named_parameters() if ".lora_" in name)
    head = 1930 if make is vit else 0  # 10 classes of 192 features, and biases
    assert (
        adapters
        == {gpt2: 2 * (4 * (128 + 384) + 4 * (128 + 128)), vit: 3 * 8 * (192 + 576), mlp: 4 * (768 + 1024)}[make]
    )
    cost = method_cost(CostModel(model), build_method("fedavg", LocalOptions()), BATCH)
    assert [part.bytes for part in (*cost.down, *cost.up)] == [4 * (adapters + head)] * 2


@THREE
def test_a_step_executes_the_flops_that_pytorch_counts(make):
    model = make()
    step, _ = step_of(model)
    # Fused attention on a CPU is not counted by PyTorch.
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            step()
        cost = measure(model, FEDAVG, model.depth, BATCH)
    products = [
        each for each in cost.operators if each.kind.startswith(("matrix-product", "batched-product", "convolution"))
    ]
    counted = sum(each.flops * each.count for each in products)
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.005)
    # PyTorch counts products only.
    assert cost.training_flops == pytest.approx(counter.get_total_flops(), rel=0.1)


@THREE
def test_a_step_needs_the_memory_that_the_allocator_hands_out(make):
    model = make()
    step, before = step_of(model)
    step()  # copies the constants
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [each for each in found.profiler.kineto_results.events() if each.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    measured = peak + before + frozen_bytes(model)
    cost = measure(model, FEDAVG, model.depth, BATCH)
    assert cost.peak_memory_bytes == pytest.approx(measured, rel=0.1)
    assert measure(model, FEDAVG, model.depth, BATCH) == cost  # the first measurement is no special case


def test_a_step_is_that_of_peft():
    torch.manual_seed(3)
    reference = Mlp()
    state = copy.deepcopy(reference.state_dict())
    peft.inject_adapter_in_model(peft.LoraConfig(r=4, lora_alpha=16, target_modules=["first", "second"]), reference)
    model = mlp()
    with torch.no_grad():
        for name, tensor in reference.named_parameters():
            if ".lora_" in name:
                tensor.copy_(torch.randn_like(tensor) / 10)
        for block in model.blocks.values():
            block.load_state_dict({**state, **reference.state_dict()}, strict=False)
    named = {name: tensor.detach().clone() for name, tensor in reference.named_parameters() if tensor.requires_grad}
    layout = model.layout
    vector = layout.flatten(
        [{e.name: named[e.name] for e in layout.entries if e.block == b} for b in range(model.depth)]
    )
    batch = batch_of(model)
    context = Context(model, {}, {}, {}, model.depth, {KEY: torch.tensor(1)} if model.random else {})
    with using(training=True):
        found, _ = local_step(
            FEDAVG.objective, FEDAVG.rule, vector.clone(), torch.zeros(0), batch, context, {}, FEDAVG.local, 0.1
        )
    F.cross_entropy(reference.train()(batch.inputs), batch.labels).backward()
    for block in layout.weights(found):
        for name, tensor in block.items():
            parameter = dict(reference.named_parameters())[name]
            torch.testing.assert_close(tensor, parameter - 0.1 * parameter.grad, rtol=1e-4, atol=1e-5)


def test_pretrained_weights_are_those_of_the_model_without_adapters(tmp_path):
    net = Mlp()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    model, inputs = mlp(weights=str(tmp_path / "net.pt")), torch.randn(3, 256)
    weights = model.layout.weights(*model.layout.split(initial_vector(model, 0)))
    with torch.no_grad(), using(training=False):  # adapters begin at zero
        torch.testing.assert_close(model.apply_blocks(weights, inputs), net(inputs))
    vector = torch.randn(model.layout.size)
    write_model(vector, model, tmp_path / "final.safetensors")
    assert torch.equal(initial_vector(mlp(weights=str(tmp_path / "final.safetensors")), 0), vector)


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"targets": ["frist"]}, r"lora.targets: 'frist' names no layer that can be adapted; did you mean 'first'"),
        ({"targets": ["first"], "rank": 0}, r"lora.rank: expected 1 or more"),
    ],
    ids=str,
)
def test_a_wrong_choice_is_refused_with_the_nearest_name(lora, message):
    from edgefl.validation import validated

    with pytest.raises(UserError, match=message):
        build_model(validated(Perceptron, {"lora": lora}), (256,), 10)


def test_the_dropout_of_adapters_draws_from_the_key_of_a_job(small, tmp_path):
    pytest.importorskip("timm", reason="timm is not installed: pip install -e '.[timm]'")
    lora = {"targets": ["qkv"], "rank": 4, "alpha": 8, "dropout": 0.3}
    args = {"depth": 2, "patch_size": 4, "in_chans": 1}
    model, finals = {"timm": "vit_tiny_patch16_224", "args": args, "lora": lora, "trainable": ["head"]}, {}
    for name in ("sequential", "batched"):
        engine = {"kind": name}
        scenario = small(
            model=model, **{"training.rounds": 2, "training.engine": engine, "training.local.lr": 0.02}
        )  # fmt: skip
        finals[name] = run(scenario, out=tmp_path / name) / "fedavg" / "seed-0" / "final.safetensors"
    found, expected = (load_file(finals[name]) for name in ("batched", "sequential"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5)


STORED = {"float32": 32, "bfloat16": 16, "int8": 8.5, "int4": 4.127}


@pytest.mark.full
@pytest.mark.parametrize("base", STORED)
def test_a_base_is_read_and_kept_in_the_bytes_of_its_type(base):
    def cost(**options):
        lora = {"targets": ["first", "second"], "rank": 4, **options}
        return method_cost(CostModel(build_model(Perceptron(lora=lora), (256,), 10)), FEDAVG, BATCH)

    def stored(rows, columns):
        return rows * -(-columns * STORED[base] // 8)

    plain, found = cost(), cost(base=base)
    shapes, biases = [(512, 256), (512, 512), (10, 512)], 512 + 512 + 10
    saved = [4 * rows * columns - stored(rows, columns) for rows, columns in shapes]
    of_biases = 2 * biases if base == "bfloat16" else 0
    assert plain.base_bytes == 4 * (sum(rows * columns for rows, columns in shapes) + biases)
    assert plain.base_bytes - found.base_bytes == sum(saved) + of_biases
    assert plain.step.peak_memory_bytes - found.step.peak_memory_bytes == sum(saved) + of_biases
    # Each is read forwards; backwards also those after an adapter, for the gradient of their input.
    reads = saved[0] + 2 * saved[1] + 2 * saved[2] + of_biases
    assert plain.step.bytes_touched - found.step.bytes_touched == reads
    assert plain.step.training_flops == found.step.training_flops

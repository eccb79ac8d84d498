"""Modules drawn at random train in edgefl as in plain PyTorch: values, buffers, evaluation and the last state dict."""

from functools import partial

import pytest
import torch

from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.pretrained import state_of
from edgefl.models.registry import build_model
from edgefl.training.engines.sequential import TRAINING
from edgefl.training.evaluation import PLAIN
from edgefl.training.self_test import check_module

from .drawn_modules import federated, made

ROUNDS = 3
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-3}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-3}),
}


def by_edgefl(model, batches, options, test):
    """The last model ``[size]`` of FedAvg, and the outputs for ``test`` after each round."""
    layout, method = model.layout, build_method("fedavg", options)
    tensors = dict(model.module.named_parameters(remove_duplicate=False))
    tensors |= dict(model.module.named_buffers(remove_duplicate=False))
    values = [{e.name: tensors[e.name].detach() for e in layout.entries if e.block == b} for b in range(model.depth)]
    vector, outputs = layout.flatten(values), []
    context = Context(model, {}, {}, {}, model.depth)
    for _ in range(ROUNDS):
        finals = []
        for client in batches:
            final = vector.clone()
            parameters, buffers = layout.split(final)
            memory = method.rule.begin(parameters, method.rule.first(parameters), options, len(client))
            for x, y in client:
                given = Batch(x.clone(), y), context, memory, options.on(layout), options.lr_at(0)
                with using(**TRAINING):
                    after, _ = local_step(method.objective, method.rule, parameters, buffers, *given)
                parameters.copy_(after)
            finals.append(final)
        vector = torch.stack(finals).mean(0)
        with torch.no_grad(), using(**PLAIN):
            outputs.append(model.apply_blocks(layout.frozen(*layout.split(vector.clone())), test))
    return vector, outputs


def nearby(seed, draw):
    """The module with first values that differ by rounding."""
    module = made(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape, generator=draw))
    return module


def check(seed):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            return made(seed)

    kind = list(OPTIMIZERS)[seed % len(OPTIMIZERS)]
    optimizer, given = OPTIMIZERS[kind]
    own = {"eps": given["eps"]} if "eps" in given else {}
    others = {name: each for name, each in given.items() if name != "eps"}
    options = LocalOptions(optimizer={"kind": kind, **own}, **others)
    model = build_model(Made(), (4,), 3)
    check_module(model, options)
    draw = torch.Generator().manual_seed(seed)
    batches = [
        [(torch.randn(8, 4, generator=draw), torch.randint(3, (8,), generator=draw)) for _ in range(2)] for _ in "ab"
    ]
    test = torch.randn(16, 4, generator=draw)
    expected, outputs = federated(made(seed), batches, partial(optimizer, **given), ROUNDS, test)
    rounded = [federated(nearby(seed, draw), batches, partial(optimizer, **given), ROUNDS, test) for _ in range(2)]
    vector, found_outputs = by_edgefl(model, batches, options, test)
    found = state_of(model, vector)
    assert found.keys() == expected.keys()
    pairs = [(n, found[n], each, [one[n] for one, _ in rounded]) for n, each in expected.items()]
    pairs += [(f"outputs {i}", found_outputs[i], outputs[i], [each[i] for _, each in rounded]) for i in range(ROUNDS)]
    for name, one, other, near in pairs:
        finite = other.isfinite()
        assert torch.equal(one[~finite], other[~finite]), name
        if finite.any() and not name.endswith("num_batches_tracked"):
            gap, *noise = (float((each - other)[finite].double().abs().max()) for each in (one, *near))
            assert gap <= 2e-5 * (1 + float(other[finite].abs().max())) + 30 * max(noise), name
    fresh = made(seed)
    fresh.load_state_dict(found, strict=True)
    with torch.no_grad():
        torch.testing.assert_close(fresh.eval()(test), found_outputs[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_a_module_drawn_at_random_trains_as_in_pytorch(seed):
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize("first", range(20, 200, 20))
def test_many_modules_drawn_at_random_train_as_in_pytorch(first):
    for seed in range(first, first + 20):
        check(seed)


def test_the_modules_differ():
    nets = [made(seed) for seed in range(20)]
    kinds = {type(each).__name__ for net in nets for each in net.modules()}
    assert kinds >= {"BatchNorm1d", "LayerNorm", "Average", "Scaled", "Joined", "Kept", "Sequential"}
    assert any(not each.requires_grad for net in nets for each in net.parameters())

"""Comparison of a view of a module with the module itself, on real numbers."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using
from edgefl.models.random_layers import RandomFunctions, backward_of


def difference(model: BlockModel, inputs: Tensor) -> str | None:
    """Where a module's blocks have other outputs, gradients or buffers than itself, in any mode; ``None``: nowhere."""
    layout, seen, vector = model.layout, list[list[tuple[str, Tensor]]](), perturbed(model, 0)

    def watched(name: str, layer: nn.Module, _: Any, output: Any) -> None:
        if "forward" in layer.__dict__:  # replaced, see layered
            return
        seen[-1].extend((name, each.detach()) for each in tree_leaves(output) if isinstance(each, Tensor))

    def run(call: Callable[[Weights, Tensor], Tensor], *, training: bool) -> list[Tensor]:
        seen.append([])
        parameters, buffers = (each.clone() for each in layout.split(vector))
        weights = layout.weights(parameters.requires_grad_(), buffers)
        with using(training=training), model.held(), RandomFunctions(torch.tensor(0), recomputes=model.recomputes):
            outputs = call(weights, inputs.clone())
            if not training or not outputs.requires_grad:
                return [outputs.detach(), buffers]
            backward_of((outputs * torch.linspace(-1, 1, outputs.numel()).view(outputs.shape)).sum())
        assert parameters.grad is not None
        gradients = [each.view(parameters.grad[layout._place(each, 0)]) for each in layout.parameters]
        return [outputs.detach(), buffers, *gradients]

    def last_tap(weights: Weights, given: Tensor) -> Tensor:
        taps = model.taps(weights, given)
        if not all(isinstance(each, Tensor) for each in taps):
            raise TypeError("a block returns no tensor")
        return taps[-1]

    assert model.module is not None
    layers = [(name, each) for name, each in model.module.named_modules() if name]
    handles = [each.register_forward_hook(partial(watched, name)) for name, each in layers]
    try:
        for training in (True, False):
            expected = run(model.apply_blocks, training=training)
            found = run(last_tap, training=training)
            if not all(close(one, other) for one, other in zip(found, expected, strict=True)):
                raise ValueError  # noqa: TRY301
    except Exception:  # noqa: BLE001  (whatever the module's code raises)
        blocks, whole = seen[-1], seen[-2] if len(seen) % 2 == 0 else seen[-1]
        unlike = (
            name
            for (name, one), (other, two) in zip_longest(whole, blocks, fillvalue=("", torch.zeros(0)))
            if name != other or not close(one, two)
        )
        return next(filter(None, unlike), next((name for name, _ in reversed(whole)), "its first submodule"))
    finally:
        for handle in handles:
            handle.remove()
    return None


def perturbed(model: BlockModel, seed: int) -> Tensor:
    """The skeleton's own values ``[size]``, changed a little, since some may be zero at first."""
    layout = model.layout
    vector = layout.flatten(model.own).cpu()
    vector *= 1 + 0.1 * noise(layout.size, 2 * seed).abs()
    vector[: layout.parameter_count] += 0.02 * noise(layout.parameter_count, 2 * seed + 1)
    return vector


def noise(size: int, seed: int) -> Tensor:
    """Normal numbers ``[size]``, which repeat, since millions of draws take seconds."""
    drawn = torch.randn(min(size, 9_973), generator=torch.Generator().manual_seed(seed))
    return drawn.repeat(-(-size // max(len(drawn), 1)))[:size]


def drawn_inputs(
    shape: Sequence[int], type: torch.dtype, tokens: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Random inputs, or tokens, by default the first one."""
    generator = generator or torch.Generator().manual_seed(0)
    if type.is_floating_point:
        return torch.randn(shape, generator=generator)
    return torch.randint(tokens or 1, shape, generator=generator)


def close(found: Tensor, expected: Tensor, rounded: Tensor | None = None) -> bool:
    """True if numbers agree within 0.1 % of the largest, or thirty times the effect of rounding (``rounded``)."""
    if found.shape != expected.shape or not torch.equal(found.isfinite(), expected.isfinite()):
        return False
    found, expected = (each.detach().double().nan_to_num() for each in (found, expected))
    if not expected.numel():
        return True
    slack = 0.0 if rounded is None else 30 * (rounded.detach().double().nan_to_num() - expected).abs().max()
    return bool((found - expected).abs().max() <= 1e-3 * expected.abs().max() + 1e-6 + slack)

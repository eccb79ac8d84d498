"""The local rule of plain SGD against torch's optimiser."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_rule import Sgd


def quadratic_gradient(x: torch.Tensor, step: int) -> torch.Tensor:
    return 3 * x - torch.arange(x.shape[-1], dtype=x.dtype) * (step + 1)


@settings(max_examples=30, deadline=None)
@given(
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    nesterov=st.booleans(),
    weight_decay=st.sampled_from([0.0, 1e-3, 0.1]),
    clip_norm=st.sampled_from([None, 0.5, 1e3]),
    lr=st.floats(1e-3, 0.2),
)
def test_steps_are_those_of_torch_sgd_after_clipping(momentum, nesterov, weight_decay, clip_norm, lr) -> None:
    nesterov = nesterov and momentum > 0
    options = LocalOptions(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, clip_norm=clip_norm)
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    reference = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([reference], lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    rule, ours = Sgd(), start.clone()
    memory = rule.begin(ours, {}, options, 4)
    for step in range(4):
        reference.grad = quadratic_gradient(reference.detach(), step)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([reference], clip_norm)
        optimiser.step()
        ours = rule.update(ours, quadratic_gradient(rule.point(ours, memory, lr), step), memory, options, lr)
    torch.testing.assert_close(ours, reference.detach(), rtol=1e-12, atol=1e-12)


def test_clients_side_by_side_take_the_steps_they_take_alone() -> None:
    options = LocalOptions(momentum=0.9, weight_decay=0.01, clip_norm=1.0)
    rule, stack = Sgd(), torch.tensor([[0.1, 0.2, 0.0], [10.0, -20.0, 5.0]])
    memory = rule.begin(stack, {}, options, 3)
    alone = [(row.clone(), rule.begin(row, {}, options, 3)) for row in stack]
    for step in range(3):
        stack = rule.update(stack, quadratic_gradient(stack, step), memory, options, 0.1)
        alone = [(rule.update(x, quadratic_gradient(x, step), m, options, 0.1), m) for x, m in alone]
    torch.testing.assert_close(stack, torch.stack([x for x, _ in alone]))

"""A local step of DP-SGD: what a device executes and stores to clip the gradient of each example, by formulas.

They are those of Opacus 1.6. ``per_sample`` stores each example's gradient of each layer, with a second copy of one
layer while it is computed. ``fast`` computes them for their norms alone, then goes back again with weighted losses;
``ghost``, too, but computes the norms of linear layers from their inputs and their outputs' gradients.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from edgefl.cost.recorder import Record, Recorder
from edgefl.methods.parts.local_step import Phase

PrivateStep = Literal["per_sample", "fast", "ghost"]

_FLOAT = 4

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class LayerCall(NamedTuple):
    """One call of a layer that has parameters, on a batch; numbers are those of one example."""

    module: nn.Module
    batch: int
    parameters: int
    bias: int
    inputs: int
    outputs: int
    places: int  # tokens of a linear layer, pixels of a convolution's output
    began: list[int]  # how many operators had been executed when its backward pass began

    @property
    def linear(self) -> bool:
        return isinstance(self.module, nn.Linear)

    @property
    def gradients(self) -> int:
        """Bytes of all examples' gradients."""
        return _FLOAT * self.batch * self.parameters

    @property
    def temporary(self) -> int:
        """Bytes that exist while the examples' gradients are computed, besides these.

        A convolution's input is unfolded; a norm is computed again, and its gradient twice copied.
        """
        numbers = self.outputs if isinstance(self.module, nn.Linear | nn.Embedding) else 3 * self.outputs
        if isinstance(self.module, CONVOLUTIONS):
            numbers = self.inputs + self.places * self.module.in_channels * math.prod(self.module.kernel_size)
        return _FLOAT * self.batch * numbers

    @property
    def macs(self) -> int:
        """Products of the examples' gradients of the weights; outer products of vectors are no products of matrices."""
        has = isinstance(self.module, CONVOLUTIONS) or (self.linear and self.places > 1)
        return self.batch * self.places * (self.parameters - self.bias) * has

    @property
    def ghost_macs(self) -> int:
        """Products of the norms of a linear layer's gradients."""
        inputs, outputs = self.inputs // self.places, self.outputs // self.places
        numbers = inputs + outputs + outputs * (self.bias > 0)
        return self.batch * (numbers if self.places == 1 else self.places**2 * (numbers + 1)) * self.linear


@contextmanager
def layer_calls(model: nn.Module, recorder: Recorder) -> Iterator[list[LayerCall]]:
    """The calls of layers in this block, in order, of a step that a recorder records."""
    calls: list[LayerCall] = []

    def called(module: nn.Module, args: Any, output: Any) -> None:
        first = next((each for each in args if isinstance(each, Tensor)), None)
        if first is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        own = [each for each in module.parameters(recurse=False) if each.requires_grad]
        bias, began = getattr(module, "bias", None), list[int]()
        channels = module.out_channels if isinstance(module, CONVOLUTIONS) else int(output.shape[-1])
        output.register_hook(lambda _: began.append(len(recorder.records)))  # type: ignore[no-untyped-call]
        numbers = sum(each.numel() for each in own), bias.numel() if isinstance(bias, Tensor) else 0
        sizes = first[0].numel(), output[0].numel(), output[0].numel() // channels
        calls.append(LayerCall(module, len(output), *numbers, *sizes, began))

    hooks = [each.register_forward_hook(called) for each in model.modules() if list(each.parameters(recurse=False))]
    try:
        yield calls
    finally:
        for each in hooks:
            each.remove()


def private_records(step: PrivateStep, records: Sequence[Record], calls: Sequence[LayerCall]) -> list[Record]:
    """The operators of a private step, from those of the plain one and its calls of layers."""
    forward, backward, update = (
        [each for each in records if each.phase == phase] for phase in ("forward", "backward", "update")
    )
    kept = backward[0].live if backward and step != "per_sample" else 0  # activations wait for the second pass
    first, stored = list[Record](), 0
    at: dict[int, list[LayerCall]] = {}
    for call in calls:
        for place in call.began:
            at.setdefault(place - len(forward), []).append(call)
    for place, record in enumerate(backward):
        first.append(record._replace(live=max(record.live, kept) + stored))
        for call in at.get(place, ()):
            ghost = step == "ghost" and (call.linear or isinstance(call.module, nn.Embedding))
            gradients = 0 if ghost else call.gradients
            live = max(record.live, kept + _FLOAT * call.batch * (call.outputs + call.inputs)) + stored
            macs = call.ghost_macs if ghost else call.macs
            moved = 2 * gradients + call.temporary + _FLOAT * call.batch * (call.inputs + call.outputs)
            flops = 2 * macs or gradients // _FLOAT
            first.append(_extra("bmm" if macs else "mul", macs, flops, moved, live + 2 * gradients + call.temporary))
            stored += gradients if step == "per_sample" else 0
    count, norms = sum(call.parameters for call in calls), sum(call.gradients for call in calls)
    after, batch = _FLOAT * count, max((call.batch for call in calls), default=0)
    end = [*first, _extra("linalg_vector_norm", 0, norms // 2, norms, after + stored, "update")]
    if step == "per_sample":
        end.append(_extra("bmm", batch * count, 2 * batch * count, norms + after, 2 * after + stored, "update"))
    else:
        end += [each._replace(live=each.live + after) for each in backward]
    end += [_extra(name, 0, count, moved * after, 4 * after, "update") for name, moved in (("normal_", 1), ("add", 3))]
    return [*forward, *end, *update]


def _extra(  # noqa: PLR0917  (as of a record)
    name: str, macs: int, flops: int, bytes: int, live: int, phase: Phase = "backward"
) -> Record:
    kind = "batched-product" if name == "bmm" else "elementwise"
    return Record(name, kind, phase, False, macs, flops, bytes, live)

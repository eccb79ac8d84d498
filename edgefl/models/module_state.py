"""What an ordinary module changes when it is called: state that no job has, and attributes that calls make anew."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgefl.errors import UserError
from edgefl.models.layout import FROZEN, content_of, switch, variables
from edgefl.models.random_layers import RandomFunctions, ViewsAsReshapes

Place = tuple[str, str]
"""The path of a layer, and the name of its attribute."""

REMADE = "remade_attributes"
"""The attribute of a layer with those that each call makes anew, and their values between calls."""

HOOKS = "hooks_of_parameters"
"""The attribute of a layer with the hooks of its parameters, by name; a copy of a parameter has none."""

_MISSING = object()
_PLAIN = frozenset(nn.Module().__dict__) | {REMADE, FROZEN, HOOKS, "_flat_weights"}
_REACHES = "which would reach other clients, methods and evaluations"


def check_attributes(twin: nn.Module, inputs: Tensor, *, reshapes: bool) -> None:
    """Refuse a module that changes attributes other than buffers in a call, or depends on earlier calls."""
    prints, outputs, put_back = list[dict[Place, bytes]](), list[list[Tensor]](), snapshot(twin)
    with torch.random.fork_rng(devices=[]):
        for _ in range(3):  # the first call may fill caches
            put_back()  # attributes may follow from buffers, as spectral norm's weight does
            outputs.append(_call(twin, inputs, reshapes))
            prints.append({place: _print_of(value) for place, value in attributes_of(twin)})
    for place, found in prints[2].items():
        if found != prints[1].get(place):
            raise UserError(
                f"{words_of(twin, place[0])} changes its attribute '{place[1]}' when it is called, {_REACHES}; keep it "
                "in a floating-point buffer (register_buffer), which is a part of a client's job"
            )
    if not all(torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True) for a, b in zip(*outputs[1:], strict=True)):
        raise UserError(
            "the model answers otherwise when it is called again with the same inputs: it draws from a generator of "
            "Python or NumPy, for which PyTorch has functions, or keeps something outside its buffers (a layer in a "
            f"list, a global variable), {_REACHES}; keep it in a floating-point buffer, and layers in attributes"
        )


def mark_remade(module: nn.Module, twin: nn.Module, before: Mapping[Place, Any], *, checked: bool) -> None:
    """Mark the attributes that calls of an equal module made anew, and check that all others can be copied."""
    layers = dict(module.named_modules())
    for (path, name), value in attributes_of(twin):
        if value is not before.get((path, name), _MISSING) and path in layers:  # a call may have made the layer
            own = layers[path].__dict__
            first = own.get(name, _MISSING)
            made = isinstance(first, Tensor) and first.grad_fn is not None
            own.setdefault(REMADE, {})[name] = _MISSING if made else first
    restore(remade(module))
    kept = {id(each): each for each in module.modules()}
    for (path, name), value in attributes_of(module) if checked else ():
        kept |= {id(each): each for each in value if isinstance(each, nn.Module)} if isinstance(value, tuple) else {}
        try:
            copy.deepcopy(value, dict(kept))
        except Exception as error:  # noqa: BLE001  (whatever a class raises)
            reason = str(error).partition(".")[0]
            raise UserError(
                f"{words_of(module, path)} has the attribute '{name}' ({type(value).__name__}), which cannot be copied "
                f"({reason}), as methods and worker processes need; make it when it is used"
            ) from None


def snapshot(module: nn.Module) -> Callable[[], None]:
    """A function that gives a module its present tensors and their values back."""
    held = [(each, dict(each)) for layer in module.modules() for each in (layer._parameters, layer._buffers)]
    own = [each for _, tensors in held for each in tensors.values() if each is not None]
    values = [(each, each.data.clone()) for each in own]

    def put_back() -> None:
        for store, tensors in held:
            store.clear()
            store.update(tensors)  # type: ignore[arg-type]
        for tensor, value in values:
            tensor.data = value.clone()

    return put_back


def remade(block: nn.Module) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
    """The layers of a block with attributes that each call makes anew."""
    return [(layer.__dict__, layer.__dict__[REMADE]) for layer in block.modules() if REMADE in layer.__dict__]


def restore(layers: list[tuple[dict[str, Any], Mapping[str, Any]]]) -> None:
    """Give attributes that a call made the values that they have between calls."""
    for held, values in layers:
        for name, value in values.items():
            if value is _MISSING:
                held.pop(name, None)
            else:
                held[name] = value


@torch.no_grad()
def _call(module: nn.Module, inputs: Tensor, reshapes: bool) -> list[Tensor]:
    """The outputs in training and in evaluation."""
    outputs = []
    for training in (True, False):
        switch(module, training=training)
        with ViewsAsReshapes() if reshapes else nullcontext(), RandomFunctions(torch.tensor(0)):
            outputs.append(module(inputs.clone()))
    return outputs


@torch.no_grad()
def check_tensors(twin: nn.Module, inputs: Tensor, *, reshapes: bool) -> None:
    """Call a module with large weights, which a limit of their norm would change, and compare its tensors."""
    put_back, own, generator = snapshot(twin), set(twin.state_dict()), torch.Generator().manual_seed(0)
    for parameter in (each for each in twin.parameters() if each.is_floating_point()):
        parameter.data.normal_(std=3.0, generator=generator)
    sent = {name for name, _, is_parameter in variables(twin) if not is_parameter}
    watched = {place: tensor for place, tensor in _tensors_of(twin) if ".".join(filter(None, place)) not in sent}
    before = {place: tensor.data.clone() for place, tensor in watched.items()}
    with torch.random.fork_rng(devices=[]), suppress(Exception):  # they may be too large for the module
        _call(twin, inputs, reshapes)
    if made := [name for name in twin.state_dict() if name not in own]:
        raise UserError(f"the model makes its tensor '{made[0]}' when it is called; make it in its constructor")
    for (path, name), tensor in _tensors_of(twin):
        value = before.get((path, name))
        if value is None or torch.equal(tensor.nan_to_num(), value.nan_to_num()):
            continue
        layer = words_of(twin, path)
        if not isinstance(watched[path, name], nn.Parameter):
            raise UserError(
                f"{layer} changes its buffer '{name}' ({str(tensor.dtype).removeprefix('torch.')}) when it is called, "
                f"{_REACHES}; make it a floating-point buffer of the state dict, which is a part of a client's job"
            )
        if not watched[path, name].requires_grad:
            raise UserError(
                f"{layer} changes its frozen parameter '{name}' when it is called, as a teacher within the model (a "
                f"moving average of weights) does, {_REACHES}; keep these numbers in floating-point buffers "
                "(register_buffer), which are a part of a client's job"
            )
        raise UserError(
            f"{layer} rewrites its parameter '{name}' when it is called, as max_norm does, {_REACHES}; leave that out, "
            "or compute the weight from the parameter (torch.nn.utils.parametrize)"
        )
    put_back()


def _tensors_of(module: nn.Module) -> Iterator[tuple[Place, Tensor]]:
    """Parameters and buffers, but no counters of batch norm."""
    for path, layer in module.named_modules():
        for name, tensor in [*layer._parameters.items(), *layer._buffers.items()]:
            if tensor is not None and not (isinstance(layer, _NormBase) and name == "num_batches_tracked"):
                yield (path, name), tensor


def attributes_of(module: nn.Module) -> Iterator[tuple[Place, Any]]:
    """The attributes of layers and of their classes that are no part of every module."""
    for path, layer in module.named_modules():
        for name, value in layer.__dict__.items():
            if name not in _PLAIN and not isinstance(value, nn.Module):
                yield (path, name), value
        for kind in type(layer).__mro__:
            if not kind.__module__.startswith(("torch.", "builtins", "transformers.", "timm.")):
                for name, value in vars(kind).items():
                    if not name.startswith("__") and isinstance(value, int | float | list | dict | set | Tensor):
                        yield (path, f"{kind.__name__}.{name}"), value


def words_of(module: nn.Module, path: str) -> str:
    """The layer at a path, for messages."""
    what = f"layer '{path}'" if path else "model"
    return f"the {what} ({type(module.get_submodule(path)).__name__})"


class _Printer(pickle.Pickler):
    """Writes values so that equal ones are equal bytes; modules are left out."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return str, (content_of(value),)
        if isinstance(value, torch.Generator):
            return bytes, (value.get_state().numpy().tobytes(),)
        if isinstance(value, nn.Module) or (callable(value) and not isinstance(value, type)):
            return str, (type(value).__name__,)
        return NotImplemented


def _print_of(value: Any) -> bytes:
    stream = io.BytesIO()
    try:
        _Printer(stream).dump(value)
    except Exception:  # noqa: BLE001  (whatever a class raises)
        return type(value).__name__.encode()
    return stream.getvalue()

"""A CUDA device rehearsed on a CPU: tensors that name it as theirs, and errors where a device would fail.

All numbers are computed on the CPU. Each storage has a label, ``cpu`` or ``cuda``. Tensors of storages with the label
``cuda`` name that device, what is computed of them has this label, and an operator on tensors with different labels
fails as it does on a GPU. PyTorch's own fake tensors cannot do this: their backward pass needs a driver, and they have
no numbers, which server updates and codecs read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from edgefl.training import accelerator

CUDA = torch.device("cuda", 0)

_READ = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero"})
"""Operators that return numbers or sizes to Python, so that the device must be waited for."""
_ANYWHERE = frozenset({"aten::copy_", "aten::_to_copy"})
_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index"})
"""Their indices may be in main memory; then they are copied, which waits for the device."""
_WHOLE = frozenset({"aten::index_select", "aten::gather", "aten::scatter"})
"""Operators that take no single number from main memory."""
_NEW = frozenset({"aten::lift_fresh", "aten::detach", "aten::alias"})
_GETTERS: Mapping[Any, Callable[[str], object]] = {
    Tensor.device.__get__: lambda label: CUDA,
    Tensor.is_cuda.__get__: lambda label: True,
    Tensor.is_cpu.__get__: lambda label: False,
    Tensor.get_device: lambda label: 0,
}


class WrongDevice(RuntimeError):  # noqa: N818  (what is wrong)
    """Tensors are on different devices, or one is where it cannot be used."""


class Waits(RuntimeError):  # noqa: N818  (what a step does)
    """A step that is recorded waits for the device."""


class Device:
    """The labels of storages, and what happened between the devices.

    Attributes:
        reads: how often Python read numbers from the device.
        copies: how often a tensor was copied between main memory and the device.
        recording: whether kernels are recorded, so that nothing may wait.
    """

    def __init__(self) -> None:
        self.reads = self.copies = 0
        self.recording = False
        self.new = "cpu"
        self._labels: dict[int, tuple[StorageWeakRef, str]] = {}

    def of(self, tensor: Tensor) -> str | None:
        """The label of a tensor; ``None`` if it has none, as a tensor without data."""
        tensor = _plain(tensor)
        if tensor.device.type != "cpu":
            return None
        return self._labels.get(tensor.untyped_storage()._cdata, (None, None))[1]

    def label(self, tensor: Tensor, label: str) -> Tensor:
        """Put a tensor on a device."""
        plain = _plain(tensor)
        if plain.device.type == "cpu":
            storage = plain.untyped_storage()
            # The weak reference keeps the address from being used again.
            self._labels[storage._cdata] = StorageWeakRef(storage), label
        return tensor

    def waited(self, why: str) -> None:
        """Something needs numbers from the device."""
        self.reads += 1
        if self.recording:
            raise Waits(why)


def _plain(tensor: Tensor) -> Tensor:
    """The tensor in main memory below the wrappers of ``torch.func``."""
    with torch._C.DisableTorchFunction():
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class _Operators(TorchDispatchMode):
    """Checks and labels what every operator reads and returns, also those of backward passes."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device, name = self._device, func._schema.name
        tensors = [each for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)]
        if name in _INDEXED:
            self._check_indices(name, args)
        elif name not in _ANYWHERE:
            self._check(name, tensors)
        labels = {device.of(each) for each in tensors}
        if "cuda" in labels and name in _READ:
            device.waited(name)
        if name == "aten::copy_" and labels >= {"cuda", "cpu"}:
            device.copies += 1
            if device.recording:
                raise Waits("a copy between main memory and the device")
        result = func(*args, **(kwargs or {}))
        untold = not tensors or (name in _NEW and labels == {None})
        made = device.new if untold else "cuda" if "cuda" in labels else "cpu"
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and device.of(each) is None:
                device.label(each, made)
        return result

    def _check(self, name: str, tensors: list[Tensor]) -> None:
        here = [each for each in tensors if self._device.of(each) == "cpu"]
        there = [each for each in tensors if self._device.of(each) == "cuda"]
        # A number in main memory is passed to a kernel by value.
        whole = [each for each in here if each.dim() or name in _WHOLE]
        if there and whole:
            raise WrongDevice(
                f"{name}: expected all tensors on {CUDA}, found one of shape {list(whole[0].shape)} on cpu"
            )

    def _check_indices(self, name: str, args: Any) -> None:
        values = [args[0], *(each for each in args[2:3] if isinstance(each, Tensor))]
        self._check(name, values)
        indices = {self._device.of(each) for each in args[1] if each is not None}
        if self._device.of(args[0]) == "cpu" and "cuda" in indices:
            raise WrongDevice(f"{name}: expected indices on cpu, found some on {CUDA}")
        if self._device.of(args[0]) == "cuda" and "cpu" in indices:
            self._device.copies += 1
            if self._device.recording:
                raise Waits("indices in main memory")


class _Functions(TorchFunctionMode):
    """Answers where a tensor is, moves it, and notes where a function that creates one wants it."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device, options = self._device, dict(kwargs or {})
        if func in _GETTERS:
            return _GETTERS[func]("") if device.of(args[0]) == "cuda" else func(*args, **options)
        if func is Tensor.to:
            return self._moved(*args, **options)
        if func in (Tensor.cpu, Tensor.cuda):
            return self._moved(args[0], "cpu" if func is Tensor.cpu else "cuda")
        if func is Tensor.pin_memory:
            if device.of(args[0]) == "cuda":
                raise WrongDevice("expected a tensor in main memory to pin, found one on the device")
            return args[0].clone()
        if func in (Tensor.numpy, Tensor.__array__) and device.of(args[0]) == "cuda":
            raise WrongDevice("expected a tensor in main memory for NumPy, found one on the device")
        if func is Tensor.tolist and device.of(args[0]) == "cuda":
            device.waited("tolist")
        tensors = [each for each in tree_leaves((args, options)) if isinstance(each, Tensor)]
        before, wanted = device.new, options.get("device")
        if wanted is None:
            device.new = "cuda" if any(device.of(each) == "cuda" for each in tensors) else "cpu"
        elif torch.device(wanted).type != "meta":
            device.new = torch.device(wanted).type
            options["device"] = "cpu"
        try:
            return func(*args, **options)
        finally:
            device.new = before

    def _moved(self, tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        device, wanted, rest = self._device, options.pop("device", None), []
        options.pop("non_blocking", None)
        for each in args:
            if isinstance(each, Tensor):
                wanted = device.of(each) or each.device
                rest.append(each.dtype)
            elif isinstance(each, str | torch.device):
                wanted = each
            elif isinstance(each, torch.dtype):
                rest.append(each)
        place = None if wanted is None else torch.device(wanted).type
        if place == "meta" or tensor.device.type == "meta":
            return Tensor.to(tensor, *args, **options)
        moved = Tensor.to(tensor, *rest, **options) if rest or options else tensor
        if place is None or place == (device.of(tensor) or "cpu"):
            return moved
        device.copies += 1
        if "cuda" in (place, device.of(tensor)) and device.recording:
            raise Waits(f"a copy to {place}")
        return device.label(moved.clone(), place)


@contextmanager
def fake_cuda(monkeypatch: pytest.MonkeyPatch, *, memory_bytes: int = 1 << 32) -> Iterator[Device]:
    """Let the block find a CUDA device with that much memory."""
    device = Device()

    def recorded(step: Callable[[], None], device_of_step: torch.device) -> Callable[[], None]:
        """A graph; its first launch finds out whether the step could have been recorded."""

        def launch() -> None:
            device.recording = True
            try:
                step()
            finally:
                device.recording = False

        return launch

    with monkeypatch.context() as patched, ExitStack() as stack:
        patched.setattr(accelerator, "available", lambda: True)
        patched.setattr(accelerator, "memory_bytes", lambda device: memory_bytes)
        patched.setattr(accelerator, "wait_for", lambda device: None)
        patched.setattr(accelerator, "recorded", recorded)
        stack.enter_context(_Operators(device))
        stack.enter_context(_Functions(device))
        yield device

"""Jobs, results and the like as plain values and named tensors, for other processes and for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


def split(value: Value) -> tuple[Value, dict[str, Tensor]]:
    """A value without its tensors, and the tensors by field, those of a mapping by ``field/name``."""
    bare: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Tensor):
            # Even an empty tensor takes a quarter of a millisecond to pickle.
            bare[field.name], tensors[field.name] = None, part
        elif isinstance(part, Mapping):
            bare[field.name] = {}
            tensors |= {f"{field.name}/{name}": tensor for name, tensor in part.items()}
    return replace(value, **bare), tensors


def joined(bare: Value, tensors: Mapping[str, Tensor]) -> Value:
    """The inverse of :func:`split`."""
    parts: dict[str, Any] = {}
    for field in fields(bare):
        part = getattr(bare, field.name)
        if part is None:
            parts[field.name] = tensors[field.name]
        elif isinstance(part, Mapping):
            parts[field.name] = within(tensors, field.name)
    return replace(bare, **parts)


def within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors called ``prefix/name``, by name."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}

"""Read and write the models of a run directory as safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from edgefl.errors import UserError
from edgefl.files import write_file
from edgefl.models.layout import Layout


def write_model(vector: Tensor, layout: Layout, path: Path) -> None:
    """Write a model ``[size]`` as tensors named ``block.tensor``."""
    write_file(path, save(named(vector, layout), {"format": "pt"}))


def write_clients(models: Mapping[int, Tensor], layout: Layout, path: Path) -> None:
    """Write local models by client, as tensors named ``client.block.tensor``."""
    tensors = {
        f"{client}.{name}": tensor
        for client, vector in sorted(models.items())
        for name, tensor in named(vector, layout).items()
    }
    write_file(path, save(tensors, {"format": "pt"}))


def named(vector: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return copies of a model's tensors in main memory, by ``block.tensor``."""
    weights = layout.weights(*layout.split(vector))
    return {
        f"{block}.{name}": tensor.detach().cpu().contiguous().clone()
        for block, tensors in zip(layout.block_names, weights, strict=True)
        for name, tensor in tensors.items()
    }


def read_model(path: Path, layout: Layout) -> Tensor:
    """Read a model ``[size]`` that :func:`write_model` wrote.

    Raises:
        UserError: the file does not exist, or contains no model of this layout.
    """
    return _vector(_tensors(path), layout, path)


def read_clients(path: Path, layout: Layout) -> dict[int, Tensor]:
    """Read the local models that :func:`write_clients` wrote, by client.

    Raises:
        UserError: the file does not exist, or contains no models of this layout.
    """
    models: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _tensors(path).items():
        client, _, name = key.partition(".")
        if not client.isdecimal():
            raise UserError("expected a client's number in front of a tensor's name", file=str(path), field=key)
        models.setdefault(int(client), {})[name] = tensor
    return {client: _vector(tensors, layout, path) for client, tensors in sorted(models.items())}


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise UserError(f"the models cannot be read: {error}", file=str(path)) from None


def _vector(tensors: Mapping[str, Tensor], layout: Layout, path: Path) -> Tensor:
    expected = {f"{layout.block_names[each.block]}.{each.name}": each.shape for each in layout.entries}
    expected |= {f"{layout.block_names[block]}.{name}": first.shape for block, name, first in layout.shared}
    for name in sorted(tensors.keys() ^ expected.keys()):
        what = "found a tensor that the model does not have" if name in tensors else "expected this tensor, found none"
        raise UserError(f"{what}; the file belongs to another model", file=str(path), field=name)
    for name, shape in expected.items():
        found = tensors[name]
        if found.shape != shape:
            raise UserError(f"expected the shape {list(shape)}, found {list(found.shape)}", file=str(path), field=name)
        if not found.is_floating_point() or not bool(torch.isfinite(found).all()):
            raise UserError("expected finite numbers, found others", file=str(path), field=name)
    blocks: list[dict[str, Tensor]] = [{} for _ in layout.block_names]
    for each in layout.entries:
        blocks[each.block][each.name] = tensors[f"{layout.block_names[each.block]}.{each.name}"]
    return layout.flatten(blocks)

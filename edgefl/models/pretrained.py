"""Pretrained weights from a file, as the first server model."""

import difflib
import pickle
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from edgefl.errors import UserError, first_line, locating, one_line
from edgefl.input_file import InputFile, find_input
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Entry, matching
from edgefl.models.lora import without_base
from edgefl.options import Options

FORMATS = (".safetensors", ".pt", ".pth")
"""Endings of the names of files: safetensors, or a state dict that ``torch.save`` wrote."""

_DAMAGED = (ValueError, EOFError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, OSError)


class Weights(Options):
    """A file of pretrained weights, and the part of the model that keeps its random first values."""

    file: InputFile = Field(description="a .safetensors file, or a .pt or .pth file of a state dict")
    skip: tuple[str, ...] = Field((), description="submodules or tensors that are not read; * is any text")
    trained: InputFile | None = Field(None, description="a run's final.safetensors, read over the file; for adapters")


First = dict[str, dict[str, Tensor]]
"""First values by block and name."""


def load(weights: Weights | str, model: BlockModel, state: Mapping[str, Tensor] | None = None) -> First:
    """Read first values, by the names of ``final.safetensors`` or of ``state``, and copy those of constants."""
    chosen = Weights(file=weights) if isinstance(weights, str) else weights
    with locating(field="weights"):
        first = _read(chosen.file, chosen.skip, model, state)
        replaced = {} if chosen.trained is None else _read(chosen.trained, (), model, state)
    return {block: {**tensors, **replaced.get(block, {})} for block, tensors in first.items()}


def _read(file: str, skip: Sequence[str], model: BlockModel, state: Mapping[str, Tensor] | None) -> First:
    own = model.own
    recorded = {name_of(model, each): own[each.block][each.name] for each in model.layout.entries}
    path = find_input(file)
    found = _tensors(path)
    schemes = [recorded] if state is None else [state, recorded]
    expected = max(schemes, key=lambda names: (len(names.keys() & found.keys()), -len(names)))
    skipped = matching(dict.fromkeys([*expected, *found]), skip, field="weights.skip", what="tensors")
    with locating(file=str(path)):
        _check_names({name: each for name, each in expected.items() if name not in skipped}, found.keys() - skipped)
        read: dict[int, Tensor] = {}
        for name, place in expected.items():
            if name in found and name not in skipped:
                read[id(place)] = _checked(name, found[name], place, read.get(id(place)))
    with torch.no_grad():
        for place in expected.values():
            if id(place) in read:
                place.copy_(read[id(place)])
    return {
        block: {name: read[id(each)] for name, each in tensors.items() if id(each) in read}
        for block, tensors in zip(model.layout.block_names, own, strict=True)
    }


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name; nothing in it is executed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix not in FORMATS:
        raise UserError(f"expected a file of the format {', '.join(FORMATS)}, found '{path.name}'", file=str(path))
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            "expected a state dict, found a pickle that needs code, which edgefl does not run; save "
            "module.state_dict()",
            file=str(path),
        ) from None
    except (SafetensorError, *_DAMAGED) as error:
        reason = one_line(first_line(error))
        raise UserError(f"not a readable {path.suffix} file ({reason})", file=str(path)) from None
    others = [name for name, each in found.items() if not isinstance(each, Tensor)] if isinstance(found, dict) else [""]
    if others:
        message = f"expected a state dict, tensors by name, found something else at '{others[0]}'"
        raise UserError(message, file=str(path))
    return dict(found)


def _check_names(expected: Mapping[str, Tensor], found: set[str]) -> None:
    have = {id(expected[name]) for name in found & expected.keys()}
    # Counters and tables of indices are constants of the module; a shared tensor may have one name only.
    missing = [name for name, each in expected.items() if id(each) not in have and each.is_floating_point()]
    other = sorted(found - expected.keys())
    if missing:
        more = f", nor {len(missing) - 1} others" if len(missing) > 1 else ""
        raise UserError(
            f"expected the tensor '{missing[0]}' {_shape(expected[missing[0]])}, found none{more}"
            f"{_nearest(missing[0], other)}"
        )
    if other:
        more = f" and {len(other) - 1} others" if len(other) > 1 else ""
        raise UserError(
            f"found the tensor '{other[0]}'{more}, which the model does not have{_nearest(other[0], expected)}; "
            "weights.skip leaves tensors out"
        )


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; the nearest name is '{close[0]}'" if close else ""


def _checked(name: str, found: Tensor, place: Tensor, shared: Tensor | None) -> Tensor:
    """The values for a place, as its type; ``shared`` are those that another name of this place has."""
    if found.shape != place.shape:
        raise UserError(f"expected '{name}' of the shape {_shape(place)}, found {_shape(found)}")
    if found.is_floating_point() != place.is_floating_point():
        kind = "floating-point numbers" if place.is_floating_point() else "integers"
        raise UserError(f"expected {kind} in '{name}', found {str(found.dtype).removeprefix('torch.')}")
    values = found.to(place.dtype)
    if values.is_floating_point() and not bool(torch.isfinite(values).all()):
        raise UserError(f"expected finite numbers in '{name}', found others")
    if shared is not None and not torch.equal(values, shared):
        raise UserError(f"expected the values of another tensor in '{name}', since the model shares them, found others")
    return values.clone()


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def name_of(model: BlockModel, entry: Entry) -> str:
    """The name of a tensor in files and options; see :attr:`BlockModel.names`."""
    if model.names == "blocks" or model.layout.block_names[entry.block] in model.new:
        return model.layout.name_of(entry)
    return entry.name if model.names == "module" else without_base(entry.name)


def places_of_names(model: BlockModel) -> dict[str, Entry | None]:
    """The place in the layout of each name of :func:`state_of`; ``None`` for constants."""
    if model.module is None or model.names != "module":
        return {name_of(model, each): each for each in model.layout.entries}
    own = model.own
    at = {id(own[each.block][each.name]): each for each in model.layout.entries}
    return {name: at.get(id(each)) for name, each in model.module.state_dict(keep_vars=True).items()}


def state_of(model: BlockModel, vector: Tensor) -> dict[str, Tensor]:
    """The tensors of a file with the values of a model ``[size]``, copies: the state dict of an ordinary module."""
    vector = vector.detach().cpu()
    if model.module is not None and model.names == "module":
        with model.having(vector) as module:
            found = {name: each for name, each in module.state_dict().items() if isinstance(each, Tensor)}
    else:
        weights = model.layout.weights(*model.layout.split(vector))
        found = {name_of(model, each): weights[each.block][each.name] for each in model.layout.entries}
    return {name: each.detach().cpu().contiguous().clone() for name, each in found.items()}

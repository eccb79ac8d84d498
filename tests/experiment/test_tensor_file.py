"""Tensors are written as the safetensors library writes them, and read back by it."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgefl.experiment.tensor_file import _TYPES, write_tensors


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    numbers = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    return numbers.to(torch.int64).to(dtype) if dtype is torch.uint64 else numbers.to(dtype)


MIXED = {f"{kind}.{width}": some(kind, 3, width) for width in (2, 0, 5) for kind in _TYPES}


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": some(torch.float32, 2, 3), "b": torch.tensor(3.0)},
        {'quoted " and é': some(torch.float64, 1), "z\nline": some(torch.uint8, 7)},
        MIXED,
    ],
    ids=["none", "two", "odd names", "every type"],
)
@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_the_bytes_are_those_of_the_library(tmp_path, tensors, metadata):
    write_tensors(tensors, tmp_path / "own", metadata)
    save_file(tensors, tmp_path / "library", metadata=metadata)
    assert (tmp_path / "own").read_bytes() == (tmp_path / "library").read_bytes()


def test_what_is_written_is_read_back_by_the_library(tmp_path):
    write_tensors(MIXED, tmp_path / "file")
    found = load_file(tmp_path / "file")
    assert sorted(found) == sorted(MIXED)
    for name, tensor in MIXED.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def test_others_may_read_a_model_where_the_umask_says_so(tmp_path):
    before = os.umask(0o022)
    try:
        write_tensors({"a": torch.zeros(1)}, tmp_path / "file")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_type_that_the_format_lacks_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"'a': safetensors files hold no torch\.complex128"):
        write_tensors({"a": torch.zeros(1, dtype=torch.complex128)}, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []

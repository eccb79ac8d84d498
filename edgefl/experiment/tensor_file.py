"""Tensors as a safetensors file, written durably.

The library's own ``save_file`` writes to a temporary name of its choice, which a kill leaves behind, and gives files
permissions that nobody but their owner may read; its ``save`` holds the whole file in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from edgefl.durable_file import durable_file

_TYPES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls types of numbers, in the order in which the library writes them."""


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name: the bytes that the library would write.

    Args:
        tensors: contiguous, in main memory, and not written to meanwhile.
        path: the file.
        metadata: words for the header.

    Raises:
        OSError: the file cannot be written; ``path`` is as it was.
        ValueError: the format has no such type of numbers.
    """
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise ValueError(f"'{name}': safetensors files hold no {tensor.dtype}")
    order = list(_TYPES)
    ordered = sorted(tensors.items(), key=lambda item: (order.index(item[1].dtype), item[0].encode()))
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with durable_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)

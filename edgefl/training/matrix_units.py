"""What this processor can do with bfloat16, found without timing anything."""

from __future__ import annotations

import torch


def has_bfloat16_matrix_units() -> bool:
    """Whether this processor multiplies bfloat16 matrices in units of their own (AMX), and PyTorch uses them."""
    return bool(torch.cpu._is_amx_tile_supported()) and multiplies_bfloat16()


def multiplies_bfloat16() -> bool:
    """Whether PyTorch has kernels for products in bfloat16 on this processor, not only its slow reference ones.

    Without them (x86 processors without AVX-512, for example) a convolution takes several times as long as in float32.
    """
    return bool(torch._C._has_mkldnn) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

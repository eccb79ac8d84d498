"""The kinds of operators that a device may execute at speeds of their own, by name.

A processor reaches one rate on wide convolutions, a part of it on narrow or grouped ones, and moves bytes faster in
a sum that overwrites its input than in a normalisation. The learning room says of which kind an operator is, a device
profile may give rates by kind.
"""

from __future__ import annotations

WIDTHS = ((8, "thin"), (32, "narrow"), (128, "medium"))
"""Channels, the fewer of a convolution's inputs and outputs, below which it is called so; else wide."""

CONVOLUTIONS = (
    *(f"{width}-{shape}" for width in (*(word for _, word in WIDTHS), "wide") for shape in ("pointwise", "spatial")),
    *("grouped", "depthwise"),
)
"""pointwise: 1×1; spatial: any larger kernel; grouped: in groups of several channels; depthwise: of one."""

KINDS = (
    *(f"convolution-{each}-{way}" for each in CONVOLUTIONS for way in ("forward", "backward")),
    *(f"{each}-{way}" for each in ("group-norm", "batch-norm", "pooling") for way in ("forward", "backward")),
    *("matrix-product", "reduction", "move", "elementwise", "elementwise-in-place"),
)
"""Every kind; layer and instance norms are counted as group norms."""

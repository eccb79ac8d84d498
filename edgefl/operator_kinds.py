"""The kinds of operators for which a device may have separate rates.

A processor reaches a lower rate on narrow or grouped convolutions than on wide ones, and moves bytes faster in a sum
that overwrites its input than in a normalisation. ``edgefl.cost`` determines the kind of each operator; a device
profile may give rates by kind.
"""

from collections.abc import Iterator
from typing import Literal

Backend = Literal["cpu", "cuda"]
"""What PyTorch computes with on a device, which decides the operators that a step executes."""

WIDTHS = ((8, "thin"), (32, "narrow"), (128, "medium"))
"""Upper limits of a convolution's channels (the smaller of inputs and outputs) for each name; above them: wide."""

CONVOLUTIONS = (
    *(f"{width}-{shape}" for width in (*(word for _, word in WIDTHS), "wide") for shape in ("pointwise", "spatial")),
    *("grouped", "depthwise"),
)
"""pointwise: 1×1; spatial: any larger kernel; grouped: in groups of several channels; depthwise: of one."""

FUSED = ("group-norm", "batch-norm", "pooling", "attention", "recurrent")

KINDS = (
    *(f"convolution-{each}-{way}" for each in CONVOLUTIONS for way in ("forward", "backward")),
    *(f"{each}-{way}" for each in FUSED for way in ("forward", "backward")),
    *("matrix-product", "reduction", "move", "elementwise", "elementwise-in-place", "batched-product"),
)
"""Every kind of a single operator; layer and instance norms are counted as group norms."""

FAMILIES = {
    **{
        f"convolution-{width}-{shape}-{way}": f"convolution-{shape}-{way}"
        for width in (*(word for _, word in WIDTHS), "wide")
        for shape in ("pointwise", "spatial")
        for way in ("forward", "backward")
        if (width, shape) != ("thin", "spatial")
    },
    "batched-product": "matrix-product",
    **{f"attention-{way}": "batched-product" for way in ("forward", "backward")},
    **{f"recurrent-{way}": "matrix-product" for way in ("forward", "backward")},
    "elementwise-in-place": "elementwise",
}
"""The family of a kind, whose rates apply where a device has none for the kind itself. A first layer, with the few
channels of an image, is not like other spatial convolutions and has no family."""


def kind_and_families(kind: str) -> Iterator[str]:
    """A kind, its family, and the family of that; the first for which a device has rates applies.

    >>> list(kind_and_families("attention-forward"))
    ['attention-forward', 'batched-product', 'matrix-product']
    """
    found: str | None = kind
    while found is not None:
        yield found
        found = FAMILIES.get(found)


RATED = tuple(dict.fromkeys((*KINDS, *FAMILIES.values())))
"""What a device may have rates for: kinds, and families of kinds."""

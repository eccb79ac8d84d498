"""A dispatch mode that does not import PyTorch's compiler."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class UncompiledMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A :class:`TorchDispatchMode` whose first use does not import the compiler, which takes a second or two."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false: skipping would import the compiler, and nothing is compiled within the mode."""
        return False

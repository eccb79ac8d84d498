"""A dispatch mode that leaves PyTorch's compiler where it is."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class UncompiledMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A :class:`TorchDispatchMode` whose first use does not import the compiler, which takes a second or two."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: skipping is what imports it, and nothing is compiled within."""
        return False

"""Entry point of the measuring script: says what is missing before PyTorch is imported."""

import sys


def run() -> None:
    """Measure the device, or say that this Python has no PyTorch."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        sys.exit(
            f"{sys.executable} cannot import PyTorch ({error}); install it with: {sys.executable} -m pip install torch"
        )
    from .main import main

    sys.exit(main())

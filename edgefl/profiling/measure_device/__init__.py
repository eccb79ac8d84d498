"""Measure how fast a device trains, for ``edgefl profile fit``.

Needs only Python 3.9 and PyTorch 1.13, or later; also runs on boards and phones (Termux). This package
imports nothing from edgefl: ``edgefl profile script`` packs it into one file that Python runs.

It times short chains of layers and whole training steps of four small networks repeatedly in turn, and writes the
shortest time of each to a JSON file. If memory or time is short, it leaves cases out and reports them.
"""

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

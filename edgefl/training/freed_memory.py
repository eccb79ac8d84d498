"""Memory that PyTorch frees stays with the process."""

import ctypes

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _MOST = -3, -1, (1 << 31) - 1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of mallopt(3), and its largest value."""


def keep_freed_memory() -> None:
    """Keep freed memory for the next step: returning it to the system and allocating it again clears every page."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError, OSError):
        return  # not glibc's
    if not mallopt(_MMAP_THRESHOLD, _MOST):
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the maximum before glibc 2.35
    mallopt(_TRIM_THRESHOLD, _MOST)

"""Random numbers that depend on their purpose, and never on when they are drawn.

Every draw in edgefl comes from a generator keyed by (seed, purpose, ids). Two methods that use the same key get the
same numbers (common random numbers), and no result depends on the order in which jobs or clients run.
"""

import hashlib

import numpy as np


def _digest(seed: int, purpose: str, ids: tuple[int | str, ...]) -> bytes:
    # repr() distinguishes 1 and "1"; the separator cannot occur in the repr of an int, nor unescaped in that of a str.
    text = "\x1f".join([repr(int(seed)), repr(purpose), *(repr(i if isinstance(i, str) else int(i)) for i in ids)])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def generator(seed: int, purpose: str, *ids: int | str) -> np.random.Generator:
    """A numpy generator (counter-based Philox) for one purpose (``"selection"``, ``"batches"``, ``"link"``).

    ``ids`` identify a draw within one purpose (round, client, dispatch number).

    >>> float(generator(0, "demo", 3).random()) == float(generator(0, "demo", 3).random())
    True
    >>> float(generator(0, "demo", 3).random()) == float(generator(0, "demo", 4).random())
    False
    """
    key = int.from_bytes(_digest(seed, purpose, ids), "little")
    return np.random.Generator(np.random.Philox(key=key))


def integer_seed(seed: int, purpose: str, *ids: int | str) -> int:
    """A 63-bit seed for a generator of another library (``torch.Generator().manual_seed``)."""
    return int.from_bytes(_digest(seed, purpose, ids)[:8], "little") >> 1

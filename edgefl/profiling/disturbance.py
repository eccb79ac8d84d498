"""Whether a measurement is good enough for a profile: how many cases were disturbed, and how large the errors are."""

from __future__ import annotations

from collections.abc import Sequence

DISTURBED = 1.3
"""A case is disturbed if its median time is more than so many times its shortest."""
MANY = 0.25
"""The largest share of disturbed cases, and the largest mean error, without a warning."""


def disturbed(spread: float) -> bool:
    """Whether a case with this ratio of its median to its shortest time was disturbed."""
    return spread > DISTURBED


def warning(spreads: Sequence[float], error: float) -> str | None:
    """What is wrong with a measurement and what to do about it; ``None`` if nothing is.

    Args:
        spreads: of each case, the ratio of its median to its shortest time.
        error: the mean relative error of the fitted figures, on whole steps or on those that check the fit.

    >>> print(warning([1.1, 1.2, 1.0, 1.5], 0.1))
    None
    >>> warning([1.1, 1.1], 0.89).partition(":")[0]
    'the profile is not reliable'
    """
    count = sum(map(disturbed, spreads))
    reasons = []
    if count > MANY * len(spreads):
        reasons.append(
            f"{count} of {len(spreads)} cases were disturbed (their median time is more than {DISTURBED:g} times their "
            "shortest)"
        )
    if error > MANY:
        reasons.append(f"the mean error is {error:.0%}")
    if not reasons:
        return None
    return (
        f"the profile is not reliable: {' and '.join(reasons)}; measure again with fewer threads (--threads 1), while "
        "no other program runs, or longer (--seconds)"
    )

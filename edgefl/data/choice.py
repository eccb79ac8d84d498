"""The samples that are used, held out for tuning, and tested on; fixed choices, the same in every run."""

import numpy as np
from numpy.typing import NDArray

from edgefl.data.sharding import Integers
from edgefl.errors import UserError
from edgefl.randomness import generator


def largest_remainders(weights: NDArray[np.float64], total: int) -> Integers:
    """Whole numbers in proportion to ``weights`` with the sum ``total``; of equal remainders, the first are rounded up.

    >>> largest_remainders(np.array([1.0, 1.0, 2.0]), 6).tolist()
    [2, 1, 3]
    """
    exact = weights / sum(weights) * total
    counts = np.floor(exact).astype(np.int64)
    # Rounded, so that equal weights stay equal and the earlier one comes first.
    order = np.argsort(-np.round(exact - counts, 9), kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def chosen_images(labels: Integers, images: int, owner: Integers | None = None) -> Integers:
    """Positions of the images to use, ascending; the same in every run, independent of its seed.

    Every owner from 0 (of -1 are samples of no owner) keeps one, of which there are no more than ``images``; others of
    the same class are left out for them, where there are any.

    >>> chosen_images(np.zeros(7, np.int64), 3, np.array([0, 0, 0, 0, 1, 0, 2])).tolist()[1:]
    [4, 6]
    """
    counts = largest_remainders(np.bincount(labels).astype(np.float64), images)
    rng = generator(0, "training images")
    orders = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(counts))]
    used = np.zeros(len(labels), dtype=bool)
    for order, count in zip(orders, counts, strict=True):
        used[order[:count]] = True
    if owner is not None:
        order = np.concatenate(orders)
        for own in np.setdiff1d(owner[owner >= 0], owner[used]):
            own_one = order[owner[order] == own][0]
            of_owner = np.bincount(owner[used & (owner >= 0)], minlength=int(owner.max()) + 1)
            spare = order[used[order] & ((owner[order] < 0) | (of_owner[np.maximum(owner[order], 0)] > 1))]
            alike = spare[labels[spare] == labels[own_one]]
            used[own_one], used[(alike if len(alike) else spare)[-1]] = True, False
    return np.flatnonzero(used)


def held_out(
    labels: Integers, origin: Integers | None, share: float, owner: Integers | None = None
) -> tuple[Integers, Integers]:
    """Positions to train on and positions held out for validation, both ascending.

    All copies of an original are in the same part; without ``origin``, every image is an original. ``share`` is the
    share of the originals of each class, rounded to the nearest whole number, but at least one if there are two. Every
    owner from 0 (of -1 are samples of no owner) keeps a sample to train on.

    The choice is the same in every run, independent of its seed, so a rate tuned on these images is never tested on
    them.

    >>> kept, held = held_out(np.array([0, 0, 0, 0, 1, 1]), np.array([5, 5, 6, 6, 7, 8]), 0.5)
    >>> len(held), bool(held[0] + 1 == held[1])
    (3, True)
    """
    rng = generator(0, "validation")
    groups = np.arange(len(labels)) if origin is None else origin
    names, first, group = np.unique(groups, return_index=True, return_inverse=True)
    group_labels = labels[first]
    out = np.zeros(len(names), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(group_labels == label))
        wanted = min(max(round(share * len(members)), 1), len(members) - 1)
        out[members[:wanted] if owner is None else _spared(members, wanted, group, owner, out)] = True
    held = out[group]
    return np.flatnonzero(~held), np.flatnonzero(held)


def _spared(members: Integers, wanted: int, group: Integers, owner: Integers, out: NDArray[np.bool_]) -> Integers:
    """The first members without which, and those that are ``out``, each owner of their samples has a sample."""
    left = np.bincount(owner[~out[group] & (owner >= 0)], minlength=int(owner.max(initial=0)) + 1)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(out) + 1))
    chosen: list[int] = []
    for member in members.tolist():
        if len(chosen) == wanted:
            break
        owners = owner[order[starts[member] : starts[member + 1]]]
        taken = np.bincount(owners[owners >= 0], minlength=len(left))
        if not ((taken > 0) & (left == taken)).any():
            left -= taken
            chosen.append(member)
    return np.array(chosen, dtype=np.int64)


def split_off(labels: Integers, owner: Integers | None, share: float) -> tuple[Integers, Integers]:
    """Positions to train on and positions to test on, both ascending, for data without test data of their own.

    The share of the samples to test on is rounded to the nearest whole number, but at least one. It is even over
    owners, and over the classes of each. Every owner keeps a sample to train on, and every class if one has several.
    The choice is the same in every run, independent of its seed.

    >>> kept, out = split_off(np.repeat([0, 1, 2], [60, 30, 1]), None, 0.2)
    >>> np.bincount(np.repeat([0, 1, 2], [60, 30, 1])[out]).tolist()
    [12, 6]
    """
    count = len(labels)
    groups = np.zeros(count, dtype=np.int64) if owner is None else owner
    order = np.lexsort((generator(0, "test share").permutation(count), labels, groups))
    wanted = max(round(share * count), 1)
    out = np.zeros(count, dtype=bool)
    # Every (1/share)-th sample of the order: within one sample of the exact share in each group and class.
    out[order[(2 * np.arange(wanted) + 1) * count // (2 * wanted)]] = True
    for names in (labels, groups):
        for name in np.setdiff1d(names, names[~out]):
            out[np.flatnonzero(names == name)[0]] = False
    if not out.any():
        spare = order
        for names in (groups, labels):  # first those of owners with several samples, of these classes with several
            _, place, counts = np.unique(names, return_inverse=True, return_counts=True)
            several = spare[counts[place[spare]] > 1]
            if not len(several) and names is groups:
                raise UserError("no sample can be tested on, as each client has only one; expected test data")
            spare = several if len(several) else spare
        out[spare[-1]] = True
    return np.flatnonzero(~out), np.flatnonzero(out)

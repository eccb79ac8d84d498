"""ε of composed mechanisms, by the accountants of dp-accounting and Opacus, and the noise that a given ε needs."""

import logging
import math
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from edgefl.errors import UserError, optional

FIELD = "privacy.dp.accountant"


class Mechanism(NamedTuple):
    """A Gaussian mechanism on a sum of terms of norm 1, of records that are sampled.

    ``rate`` is the probability with which each is drawn, 1 for all; or ``of`` records a fixed number is drawn, which
    makes the rate.
    """

    noise: float
    rate: float = 1.0
    of: int = 0


Phases = tuple[tuple[Mechanism, int], ...]
"""Mechanisms, and how often each is applied."""


def phases_of(counts: Iterable[tuple[Mechanism, int]]) -> Phases:
    """In an order that the same mechanisms always have."""
    return tuple(sorted((mechanism, count) for mechanism, count in counts if count))


@lru_cache(maxsize=100_000)
def epsilon(phases: Phases, delta: float, accountant: str) -> float:
    """ε at δ of all phases, as one of the accountants ``pld``, ``rdp`` and ``prv`` bounds it.

    Raises:
        UserError: the accountant's package is not installed, or it has no bound for such sampling.
    """
    optional("opacus" if accountant == "prv" else "dp_accounting", "privacy", field=FIELD)
    if not phases:
        return 0.0
    if any(not mechanism.noise for mechanism, _ in phases):
        return math.inf
    if accountant != "rdp" and any(mechanism.of for mechanism, _ in phases):
        raise UserError("only rdp bounds a cohort of a fixed size; expected rdp", field=FIELD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders and numbers that an accountant leaves out itself
        logging.getLogger("absl").setLevel(logging.ERROR)
        return float(_BOUNDS[accountant](phases, delta))


def _pld(phases: Phases, delta: float) -> float:
    first, *others = (_loss_distribution(mechanism).self_compose(count) for mechanism, count in phases)
    for each in others:
        first = first.compose(each)
    return float(first.get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def _loss_distribution(mechanism: Mechanism) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        mechanism.noise, sampling_prob=mechanism.rate, value_discretization_interval=1e-4
    )


def _rdp(phases: Phases, delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curves = zip(*(_renyi(mechanism) for mechanism, _ in phases), strict=True)
    total = sum(count * curve for (_, count), curve in zip(phases, curves, strict=True))
    return float(rdp_privacy_accountant.compute_epsilon(orders[0], total, delta)[0])


@lru_cache(maxsize=4096)
def _renyi(mechanism: Mechanism) -> tuple[Any, Any]:
    """The accountant's default orders, and the Rényi divergence at each."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event: Any = dp_accounting.GaussianDpEvent(mechanism.noise)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if mechanism.of:
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            mechanism.of, round(mechanism.rate * mechanism.of), event
        )
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    elif mechanism.rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(mechanism.rate, event)
    accountant = RdpAccountant(neighboring_relation=relation)
    accountant.compose(event)
    return accountant._orders, accountant._rdp


def _prv(phases: Phases, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(mechanism.noise, mechanism.rate, count) for mechanism, count in phases]
    return float(accountant.get_epsilon(delta))


_BOUNDS: dict[str, Callable[[Phases, float], float]] = {"pld": _pld, "rdp": _rdp, "prv": _prv}


def noise_for(target: float, loss: Callable[[float], float]) -> float:
    """The least noise, within 1e-4 of itself, whose ``loss`` ε is at most a target.

    >>> round(noise_for(2.0, lambda noise: 3.0 / noise), 3)
    1.5
    """
    low, high = 0.0, 1.0
    while loss(high) > target:
        low, high = high, 2 * high
        if high > 1e6:
            raise UserError(f"no noise gives ε {target:g} at this δ", field="privacy.dp.epsilon")
    while high - low > 1e-4 * high and high > 1e-3:
        middle = max(low, high / 2) if low < high / 2 else (low + high) / 2
        low, high = (low, middle) if loss(middle) <= target else (middle, high)
    return high

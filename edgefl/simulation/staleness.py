"""The weight s(τ) of an update that was trained from a model τ aggregations ago (asynchronous protocols)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from edgefl.options import Options


class _Spec(Options):
    model_config = ConfigDict(allow_inf_nan=False)


class ConstantStaleness(_Spec):
    """s(τ) = 1: an old update has the weight of a new one."""

    kind: Literal["constant"] = Field(default="constant", description="constant: the same weight for all updates")

    def factor(self, staleness: int) -> float:
        """s(τ)."""
        return 1.0


class PolynomialStaleness(_Spec):
    """s(τ) = (1 + τ)^-a (FedAsync's polynomial; a = 1/2 is FedBuff's).

    >>> PolynomialStaleness().factor(3)
    0.5
    """

    kind: Literal["polynomial"] = Field(default="polynomial", description="polynomial: (1 + τ)^-exponent")
    exponent: float = Field(default=0.5, ge=0, description="a")

    def factor(self, staleness: int) -> float:
        """s(τ)."""
        return float((1 + staleness) ** -self.exponent)


class HingeStaleness(_Spec):
    """s(τ) = 1 up to ``grace`` aggregations, 1 / (slope · (τ - grace) + 1) beyond (Xie et al. 2019, Sec. 5.2).

    >>> HingeStaleness().factor(4), HingeStaleness(slope=1.0).factor(5)
    (1.0, 0.5)
    """

    kind: Literal["hinge"] = Field(default="hinge", description="hinge: 1 up to grace, 1 / (slope · (τ - grace) + 1)")
    slope: float = Field(default=10.0, gt=0, description="how fast the factor falls beyond the grace")
    grace: int = Field(default=4, ge=0, description="age in aggregations up to which an update has its full weight")

    def factor(self, staleness: int) -> float:
        """s(τ)."""
        return 1.0 if staleness <= self.grace else 1 / (self.slope * (staleness - self.grace) + 1)


def _kind(value: Any) -> Any:
    return value.get("kind", "polynomial") if isinstance(value, dict) else getattr(value, "kind", None)


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Staleness = Annotated[
    Annotated[ConstantStaleness, Tag("constant")]
    | Annotated[PolynomialStaleness, Tag("polynomial")]
    | Annotated[HingeStaleness, Tag("hinge")],
    Discriminator(_kind),
    BeforeValidator(
        _named,
        json_schema_input_type=Literal["constant", "polynomial", "hinge"]
        | ConstantStaleness
        | PolynomialStaleness
        | HingeStaleness,
    ),
]
"""The weight of an update that was trained from a model τ aggregations ago."""
